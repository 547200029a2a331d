"""Report files of the lab, read back: load tests and chaos runs."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from comfyui_agent.lab.load.rows import Row, RowStatus

LARGEST = 512 * 1024 * 1024
TIMES = ("seconds", "started_at", "ended_at")


class ReportKind(str, Enum):
    """What was done to the servers."""

    LOADTEST = "loadtest"
    CHAOS = "chaos"

    def __str__(self) -> str:
        return self.value


class BadReport(ValueError):
    """A file that is no report of the lab, in one line."""


@dataclass(frozen=True)
class Level:
    """One step of a load test: how hard was pressed, and what came of it."""

    level: float
    unit: str
    wall_clock_sec: float
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Report:
    """A report as it was written. What is absent or no number reads as None, never as an error."""

    path: Path
    kind: ReportKind
    summary: Mapping[str, Any]
    results: Sequence[Mapping[str, Any]]
    environment: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def mode(self) -> str:
        """`closed`, `open`, `books` or `scenario`; empty where the report does not say."""
        return str(self.summary.get("mode") or "")

    @property
    def is_partial(self) -> bool:
        """Whether the run was ended before its end."""
        return bool(self.summary.get("partial")) or self.unfinished > 0

    @property
    def unfinished(self) -> int:
        return int(as_number(self.summary.get("unfinished")) or 0)

    @property
    def started_at(self) -> float | None:
        return moment(self.environment.get("started_at"))

    @property
    def ended_at(self) -> float | None:
        return moment(self.environment.get("ended_at"))

    @property
    def servers(self) -> list[Mapping[str, Any]]:
        """What is known of each server."""
        return _mappings(self.environment.get("servers"))

    @property
    def parameters(self) -> Mapping[str, Any]:
        return _mapping(self.environment.get("parameters"))

    @property
    def workflow(self) -> Mapping[str, Any]:
        return _mapping(self.environment.get("workflow"))

    @property
    def targets(self) -> Mapping[str, Any]:
        """The SLA that the run itself was held to."""
        return _mapping(self.environment.get("sla"))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The prompts of a load test, in the order in which they ended."""
        if self.kind is not ReportKind.LOADTEST:
            return ()
        rows = [_row(number, each, self.started_at) for number, each in enumerate(self.results)]
        return tuple(sorted(rows, key=lambda row: (row.ended_seconds, row.index)))

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The steps of a ramp, from the gentlest; a run that held one level is one step."""
        found = [_level(each, self.rows) for each in _mappings(self.summary.get("levels"))]
        known = [level for level in found if level.rows]
        if len(known) > 1:
            return tuple(sorted(known, key=lambda level: level.level))
        number, unit = (known[0].level, known[0].unit) if known else (0.0, "")
        return (Level(number, unit, self.wall_clock_sec, self.rows),)

    @property
    def has_times(self) -> bool:
        """Whether the rows say when they were sent."""
        return all(any(each.get(key) is not None for key in TIMES) for each in self.results)

    @property
    def wall_clock_sec(self) -> float:
        """As the report says; else from its rows."""
        written = as_number(self.summary.get("wall_clock_sec"))
        if written is not None and written > 0:
            return written
        return max((row.ended_seconds for row in self.rows), default=0.0)


def read_report(path: Path) -> Report:
    """The report in a file. BadReport, in one line, if it is not there, not JSON, too large, or something else."""
    document = _read_json(path)
    if not isinstance(document, dict):
        raise BadReport(f"{path} is not a report: a report is a JSON object with summary, results and environment")
    _recognise(path, document)
    summary, results, environment = document["summary"], document["results"], document["environment"]
    kind = environment.get("kind") or summary.get("kind") or ReportKind.LOADTEST.value
    if kind not in [each.value for each in ReportKind]:
        raise BadReport(f"{path} is a report of the kind {str(kind)[:60]!r}: a load test or a chaos report is wanted")
    needed = "total_jobs" if kind == ReportKind.LOADTEST.value else "total"
    if as_number(summary.get(needed)) is None:
        raise BadReport(f"{path} is not a whole report: its summary has no {needed}")
    if not all(isinstance(each, dict) for each in results):
        raise BadReport(f"{path} is not a report: its results are not a list of objects")
    return Report(path, ReportKind(kind), summary, results, environment)


def _read_json(path: Path) -> Any:
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise BadReport(f"{path} is a folder, not a report")
        if not stat.S_ISREG(found.st_mode):
            raise BadReport(f"{path} is not a plain file")
        if found.st_size > LARGEST:
            raise BadReport(f"{path} is too large for a report: {found.st_size / 1024**2:.0f} MB, at most 512 MB")
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadReport(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, BadReport):
            raise
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise BadReport(f"{path} cannot be read: {reason}") from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise BadReport(f"{path} is not JSON: {reason}") from None


def _recognise(path: Path, document: dict[str, Any]) -> None:
    """Say what a file is that is no report."""
    shapes = {"summary": dict, "results": list, "environment": dict}
    missing = [key for key, shape in shapes.items() if not isinstance(document.get(key), shape)]
    if not missing:
        return
    if "gpu_trace" in document and "nodes" in document:
        raise BadReport(f"{path} is a profile (e3 profile): a load test or a chaos report is wanted")
    if "total_jobs" in document:
        raise BadReport(f"{path} is the summary of a report alone: the whole report is wanted")
    raise BadReport(f"{path} is not a report: it has no {' and no '.join(missing)}")


def as_number(value: Any) -> float | None:
    """A finite number, or None: reports may have been written by others."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def moment(value: Any) -> float | None:
    """Seconds since 1970 of a time as reports and the metrics log write it; UTC where no zone is named."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def _row(number: int, each: Mapping[str, Any], began: float | None) -> Row:
    status = each.get("status")
    duration = _seconds(each.get("duration_sec"))
    cached = each.get("cached") is True
    return Row(
        index=int(as_number(each.get("index")) or number),
        prompt_id=str(each.get("prompt_id") or ""),
        status=RowStatus(status) if status in [known.value for known in RowStatus] else RowStatus.FAILED,
        duration_sec=duration,
        queue_sec=_seconds(each.get("queue_sec")),
        exec_sec=_seconds(each.get("exec_sec")),
        cached=cached,
        error=str(each["error"]) if each.get("error") else None,
        failure_class=str(each["failure_class"]) if each.get("failure_class") else None,
        server=str(each.get("server") or ""),
        level=as_number(each.get("level")) or 0.0,
        ended_at=str(each.get("ended_at") or ""),
        seconds=_began_after(each, began, duration or 0.0),
        images=int(as_number(each.get("images", 1)) or 0),
    )


def _began_after(each: Mapping[str, Any], began: float | None, duration: float) -> float:
    """When a prompt was sent, in seconds of the run."""
    written = as_number(each.get("seconds"))
    if written is not None:
        return written
    started, ended = moment(each.get("started_at")), moment(each.get("ended_at"))
    if started is None and ended is not None:
        started = ended - duration
    return 0.0 if started is None or began is None else started - began


def _seconds(value: Any) -> float | None:
    number = as_number(value)
    return None if number is None or number < 0 else number


def _level(each: Mapping[str, Any], rows: tuple[Row, ...]) -> Level:
    number = as_number(each.get("level")) or 0.0
    own = tuple(row for row in rows if math.isclose(row.level, number, rel_tol=1e-5))
    wall = as_number(each.get("wall_clock_sec")) or 0.0
    return Level(number, str(each.get("unit") or ""), wall, own)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
