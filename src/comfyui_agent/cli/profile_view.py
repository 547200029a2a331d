"""The progress of a profile, and its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from comfyui_agent.cli.output import one_line
from comfyui_agent.cli.progress import ProgressView, Status
from comfyui_agent.lab.quantities import short_seconds

if TYPE_CHECKING:
    from comfyui_agent.lab.profiling.profile import Profiling
    from comfyui_agent.lab.profiling.runs import Kind, Run
    from comfyui_agent.lab.reports.profile import NodeCost, ProfileReport

NODES_SHOWN = 6
BAR_WIDTH = 24


class ProfileView:
    """Says when each run ends, and shows the step of the current one, or in plain lines when it begins."""

    def __init__(self, *, err: bool) -> None:
        self._work: Profiling | None = None
        self._run = ""
        self.progress = ProgressView(self._status, err=err)

    def follow(self, work: Profiling) -> None:
        self._work, self._run = work, ""

    def began(self, name: str, kind: Kind, number: int, total: int) -> None:
        self._run = f"{name}  {kind} run {number} of {total}" if number else f"{name}  {kind} run"
        if not self.progress.is_live:
            self.progress.say(f"◐ Rendering  {self._run}")

    def ended(self, name: str, run: Run) -> None:
        cached = "  from the cache" if run.cached else ""
        self.progress.say(f"● Done  {name}  {run.kind} run  {short_seconds(run.duration_sec)}{cached}")

    def _status(self) -> Status:
        run, progress = one_line(self._run), self._work.progress if self._work else None
        if progress is None or not progress.node_type:
            return Status(f"◐ {run}" if run else "○ Freeing the server's memory")
        node = one_line(progress.node_type)
        if not progress.steps:
            return Status(f"◐ {run}  {node}")
        step = f"step {progress.step} of {progress.steps}"
        return Status(f" {run}  {node}, {step}", progress.step / progress.steps, BAR_WIDTH)


def summary_of(report: ProfileReport) -> list[str]:
    """A profile in a few lines: how long, where the time goes, how much memory, and warnings."""
    mark = "△" if report.partial or report.warnings else "●"
    times = f"{short_seconds(report.duration_sec)} warm, {short_seconds(report.cold_duration_sec)} cold"
    first = f"{mark} {report.workflow.name}: {times}{', partial' if report.partial else ''}"
    if report.nodes and report.nodes[0].share:
        node = report.nodes[0]
        first += f". Node {node.node_id} ({node.class_type}) takes {_percent(node.share)} of a warm run"
    load, sampling, transfer = map(short_seconds, (report.model_load_sec, report.sampling_sec, report.transfer_sec))
    return [
        f"{first}.",
        f"  Model load {load} (cold), sampling {sampling}, transfer {transfer}. {_memory(report)}",
        f"  {report.fits_at_once.sentence}",
        *(["", *_table(report.nodes)] if report.nodes else []),
        *(f"  △ {warning}" for warning in report.warnings),
    ]


def _table(nodes: Sequence[NodeCost]) -> list[str]:
    rows = [["Node", "Class", "Cold", "Warm", "Share"]]
    for node in nodes[:NODES_SHOWN]:
        times = [short_seconds(node.cold_sec), short_seconds(node.warm_sec), _percent(node.share)]
        rows.append([one_line(node.node_id), one_line(node.class_type), *times])
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  " + "  ".join([*names, *numbers]))
    more = len(nodes) - NODES_SHOWN
    return lines + ([f"  and {more} more"] if more > 0 else [])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"


def _memory(report: ProfileReport) -> str:
    if report.peak_vram_mb is None:
        return "Video memory was not seen."
    idle = "." if report.idle_vram_mb is None else f", {report.idle_vram_mb:,} MB idle."
    return f"Video memory {report.peak_vram_mb:,} MB at most{idle}"
