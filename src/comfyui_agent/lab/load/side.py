"""One of two load tests that are compared, and why the two may not be comparable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.batch_means import Series, Share
from comfyui_agent.lab.reports.fields import Count, Flag, Number, OptionalText, Part
from comfyui_agent.lab.reports.load import LoadReport, Row

MOST_FAILED = 0.1
LOAD = {
    "mode": "the mode",
    "levels": "the load (levels)",
    "pages": "the pages of a book",
    "parallel_pages": "parallel_pages",
    "arrivals": "the arrivals",
    "same_seeds": "same_seeds",
}
NOT_COMPARED = {*LOAD, "seed", "server", "servers", "output", "baseline", "workflow"}
FACTS = {
    "jobs": "the number of jobs",
    "comfyui_version": "the ComfyUI version",
    "pytorch": "the PyTorch version",
    "driver": "the driver",
    "devices": "the graphics card",
    "e3": "the version of E3",
}


class Completion(NamedTuple):
    """The images of a prompt, and the seconds since the one before ended."""

    images: int
    gap: float


class ComparedRun(Part):
    name: str
    started_at: OptionalText
    workflow: OptionalText
    mode: str
    levels: list[Number]
    jobs: Count
    servers: list[OptionalText]
    comfyui_version: list[str]
    devices: list[str]
    e3: OptionalText
    partial: Flag


class Side:
    """What is compared of a report. Times leave out answers from the cache, which measured nothing."""

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        self.levels = [float(level.level or 0.0) for level, _ in report.levels] or [0.0]
        completed = [row for row in report.rows if row.is_completed]
        rendered = [row for row in completed if not row.cached]
        self.completed = Share(len(completed), len(report.rows))
        self.cached = Share(len(completed) - len(rendered), len(completed))
        wall = report.wall_clock_sec
        waits = _known(row.queue_sec for row in rendered)
        waiting = sum(waits) / wall if wall > 0 else 0.0
        self.durations = Series(_known(row.duration_sec for row in rendered), waiting)
        self.executions = Series(_known(row.exec_sec for row in rendered))
        self.waits = Series(waits, waiting)
        self.rate = sum(row.images for row in completed) / wall * 60 if wall > 0 else None
        self.completions = Series(_completions(completed) if report.has_times else ())
        environment = report.environment
        self.facts: dict[str, Any] = {
            key: _each_once(getattr(server, key) for server in environment.servers)
            for key in ("comfyui_version", "pytorch", "driver")
        }
        cards = (", ".join(device.name for device in server.devices) for server in environment.servers)
        self.facts |= {"devices": _each_once(cards), "e3": environment.e3, "jobs": len(report.rows)}

    def as_run(self) -> ComparedRun:
        environment = self.report.environment
        return ComparedRun(
            name=self.report.path.name,
            started_at=environment.started_at,
            workflow=environment.workflow.name,
            mode=self.report.summary.mode,
            levels=[*self.levels],
            jobs=len(self.report.rows),
            servers=[server.server for server in environment.servers],
            comfyui_version=self.facts["comfyui_version"],
            devices=self.facts["devices"],
            e3=environment.e3,
            partial=self.report.is_partial,
        )


def grave_differences(a: Side, b: Side) -> list[str]:
    """Why the two measured different things."""
    found = []
    first, second = a.report.environment, b.report.environment
    if first.workflow.sha256 != second.workflow.sha256:
        names = [each.workflow.name or "an unnamed one" for each in (first, second)]
        found.append(f"The workflow differs: {names[0]} in A, {names[1]} in B; they cannot be compared.")
    load_a, load_b = (
        {"mode": each.report.summary.mode or "unknown", **each.report.environment.parameters} for each in (a, b)
    )
    return found + _differing(load_a, load_b, LOAD)


def other_differences(a: Side, b: Side) -> list[str]:
    """What else was not the same, and may explain a difference."""
    first, second = a.report.environment.parameters, b.report.environment.parameters
    found = _differing(first, second, {key: f"the parameter {key}" for key in sorted({*first, *second} - NOT_COMPARED)})
    return found + _differing(a.facts, b.facts, FACTS)


def weaknesses(a: Side, b: Side) -> list[str]:
    """What either run lacks."""
    found = []
    for name, side in (("A", a), ("B", b)):
        failed, total = side.completed.total - side.completed.hits, side.completed.total
        if side.report.is_partial:
            found.append(f"{name} was stopped before its end: its slowest jobs may be missing.")
        if side.cached.hits:
            found.append(f"{side.cached} answers of {name} came from the cache: left out of the times.")
        if failed > MOST_FAILED * total:
            found.append(f"{failed} of {counted(total, 'job')} of {name} failed: its times are of the rest.")
        if len(side.levels) > 1:
            found.append(f"{name} is a ramp of {len(side.levels)} levels: its times are a mixture of them all.")
    if a.report.summary.mode == b.report.summary.mode == "open":
        found.append("In an open loop throughput is what was sent, as long as the servers keep up.")
    return found


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [
        f"{name[0].upper()}{name[1:]} differs: {_as_text(a.get(key))} in A, {_as_text(b.get(key))} in B."
        for key, name in names.items()
        if a.get(key) != b.get(key)
    ]


def _as_text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_as_text, value)) or "none"
    return "unknown" if value is None else str(value)[:120]


def _each_once(values: Iterable[Any]) -> list[str]:
    return sorted({_as_text(value) for value in values})


def _completions(rows: Sequence[Row]) -> list[Completion]:
    ends = [0.0, *(row.ended_seconds for row in rows)]
    gaps = (max(0.0, later - earlier) for earlier, later in pairwise(ends))
    return [Completion(row.images, gap) for row, gap in zip(rows, gaps, strict=True)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
