"""How a profile goes on, and what came of it: a line that lives on a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from comfyui_agent.cli.output import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from comfyui_agent.lab.profiling.profile import Profiling
    from comfyui_agent.lab.profiling.runs import Kind, Run

NODES_SHOWN = 6
BAR = 24


class Lines:
    """A line for the beginning and the end of each run."""

    def __init__(self, *, err: bool) -> None:
        self._err = err
        self._work: Profiling | None = None

    def begin(self, server: str) -> None:
        self._say(f"Profiling on {server}. Ctrl-C stops; what was measured until then is kept.")

    def follow(self, work: Profiling) -> None:
        self._work = work

    def began(self, name: str, kind: Kind, number: int, total: int) -> None:
        self._say(f"◐ Rendering  {name}  {_which(kind, number, total)}")

    def ended(self, name: str, run: Run) -> None:
        cached = "  from the cache" if run.cached else ""
        self._say(f"● Done  {name}  {run.kind} run  {_seconds(run.duration_sec)}{cached}")

    def _say(self, words: str) -> None:
        typer.echo(one_line(words), err=self._err)

    def end(self) -> None:
        pass


class Board(Lines):
    """A line that lives, for the run under way. What ended scrolls by above."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(err=False)
        self._words = ""
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, get_renderable=self._view, refresh_per_second=8, transient=True)

    def begin(self, server: str) -> None:
        super().begin(server)
        self._live.start()

    def follow(self, work: Profiling) -> None:
        super().follow(work)
        self._words = ""

    def began(self, name: str, kind: Kind, number: int, total: int) -> None:
        self._words = f"{name}  {_which(kind, number, total)}"

    def _view(self) -> Text:
        from rich.text import Text

        progress = self._work.progress if self._work else None
        if progress is None or not progress.node_type:
            return Text(f"◐ {one_line(self._words)}" if self._words else "○ Freeing the server's memory")
        node = one_line(progress.node_type)
        if not progress.steps:
            return Text(f"◐ {one_line(self._words)}  {node}")
        filled = round(BAR * min(1.0, progress.step / progress.steps))
        bar = Text("━" * filled, "cyan") + Text("─" * (BAR - filled), "dim")
        return bar + Text(f" {one_line(self._words)}  {node}, step {progress.step} of {progress.steps}")

    def _say(self, words: str) -> None:
        from rich.text import Text

        self._console.print(Text(one_line(words)), soft_wrap=True)

    def end(self) -> None:
        self._live.stop()


def _which(kind: Kind, number: int, total: int) -> str:
    return f"{kind} run {number} of {total}" if number else f"{kind} run"


def summary_of(report: dict[str, Any]) -> list[str]:
    """A profile in a few lines: how long, where the time goes, what it holds, what to know about it."""
    name, nodes = report["workflow"]["name"], report["nodes"]
    mark = "△" if report["partial"] or report["warnings"] else "●"
    lines = [f"{mark} {name}: {_seconds(report['duration_sec'])} warm, {_seconds(report['cold_duration_sec'])} cold"]
    lines[0] += ", partial" if report["partial"] else ""
    if nodes and nodes[0]["share"]:
        first = nodes[0]
        lines[0] += f". Node {first['node_id']} ({first['class_type']}) takes {_percent(first['share'])} of a warm run"
    lines[0] += "."
    lines.append(
        f"  Model load {_seconds(report['model_load_sec'])} (cold), sampling {_seconds(report['sampling_sec'])}, "
        f"transfer {_seconds(report['transfer_sec'])}. {_memory(report['peak_vram_mb'], report['idle_vram_mb'])}"
    )
    lines.append(f"  {report['fits_at_once']['sentence']}")
    lines += ["", *_table(nodes)] if nodes else []
    return lines + [f"  △ {warning}" for warning in report["warnings"]]


def _table(nodes: list[dict[str, Any]]) -> list[str]:
    rows = [["Node", "Class", "Cold", "Warm", "Share"]]
    for node in nodes[:NODES_SHOWN]:
        times = [_seconds(node["cold_sec"]), _seconds(node["warm_sec"]), _percent(node["share"])]
        rows.append([one_line(node["node_id"]), one_line(node["class_type"]), *times])
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  " + "  ".join([*words, *numbers]))
    more = len(nodes) - NODES_SHOWN
    return lines + ([f"  and {more} more"] if more > 0 else [])


def _seconds(value: float | None) -> str:
    """Three digits, in the unit that reads best."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"


def _memory(peak: int | None, idle: int | None) -> str:
    if peak is None:
        return "Video memory was not seen."
    return f"Video memory {peak:,} MB at most" + ("." if idle is None else f", {idle:,} MB idle.")
