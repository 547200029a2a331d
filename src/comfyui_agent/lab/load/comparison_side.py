"""One of two load tests that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from comfyui_agent.lab.load.confidence import Share
from comfyui_agent.lab.load.reports import Report
from comfyui_agent.lab.load.resampling import Series
from comfyui_agent.lab.load.rows import Row


class Side:
    """What of a report is compared. Answers from the cache are left out of the times: they measured nothing."""

    def __init__(self, report: Report) -> None:
        self.report = report
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
        return _told_once(_devices(server) for server in self.report.servers)

    def versions(self, key: str) -> list[str]:
        """What its servers say under a key, each once."""
        return _told_once(server.get(key) for server in self.report.servers)

    def as_json(self) -> dict[str, Any]:
        """What a reader needs to know which run this was."""
        report = self.report
        return {
            "name": report.name,
            "started_at": report.environment.get("started_at"),
            "workflow": report.workflow.get("name"),
            "mode": report.mode,
            "levels": [level.level for level in report.levels],
            "jobs": len(report.rows),
            "servers": [server.get("server") for server in report.servers],
            "comfyui_version": self.versions("comfyui_version"),
            "devices": self.devices,
            "e3": report.environment.get("e3"),
            "partial": report.is_partial,
        }


def told(value: Any) -> str:
    """A value of a report in words."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(told, value)) or "none"
    return "unknown" if value is None else str(value)[:120]


def _told_once(values: Iterable[Any]) -> list[str]:
    return sorted({told(value) for value in values})


def _devices(server: Mapping[str, Any]) -> str:
    devices = server.get("devices")
    return ", ".join(str(each.get("name")) for each in devices or () if isinstance(each, dict))


def _gaps(completed: Sequence[Row]) -> list[float]:
    ends = [0.0, *(row.ended_seconds for row in completed)]
    return [max(0.0, later - earlier) for earlier, later in pairwise(ends)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
