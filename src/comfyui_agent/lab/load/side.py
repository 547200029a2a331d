"""One of two load tests that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from comfyui_agent.lab.load.confidence import Share
from comfyui_agent.lab.load.resampling import Series
from comfyui_agent.lab.load.sample import samples_of
from comfyui_agent.lab.reports.comparison import ComparedRun
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.load import LoadReport, Row


class Side:
    """What is compared of a report. Times leave out answers from the cache, which measured nothing."""

    def __init__(self, report: LoadReport) -> None:
        self.report = report
        self.levels = [sample.level for sample in samples_of(report)]
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
        self.gaps = Series(_gaps(completed) if report.has_times else ())
        self.images = [float(row.images) for row in completed]

    @property
    def devices(self) -> list[str]:
        return _each_once(_device_names(server) for server in self.report.environment.servers)

    def versions(self, key: str) -> list[str]:
        """What its servers say under a key, each once."""
        return _each_once(getattr(server, key) for server in self.report.environment.servers)

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
            comfyui_version=self.versions("comfyui_version"),
            devices=self.devices,
            e3=environment.e3,
            partial=self.report.is_partial,
        )


def as_words(value: Any) -> str:
    """A value of a report as text."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(as_words, value)) or "none"
    return "unknown" if value is None else str(value)[:120]


def _each_once(values: Iterable[Any]) -> list[str]:
    return sorted({as_words(value) for value in values})


def _device_names(server: ServerFacts) -> str:
    return ", ".join(device.name for device in server.devices)


def _gaps(completed: Sequence[Row]) -> list[float]:
    ends = [0.0, *(row.ended_seconds for row in completed)]
    return [max(0.0, later - earlier) for earlier, later in pairwise(ends)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
