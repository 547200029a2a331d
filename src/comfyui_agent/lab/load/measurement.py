"""What a load test has measured, and the figures of it."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.lab.load.plan import LoadPlan
from comfyui_agent.lab.measurement.machine import GpuTrace, RunClock
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.load import Figures, Row, RowStatus

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class LevelRun:
    """The rows of one level, and its time from the first post to the last result. `is_whole`: it came to its end."""

    level: float
    rows: tuple[Row, ...]
    wall_clock_sec: float
    is_whole: bool = True

    @property
    def is_reached(self) -> bool:
        """Whether there were prompts enough for so many at once."""
        return len(self.rows) >= self.level

    @property
    def noise(self) -> float:
        """The standard error of its throughput, as a share of it, by the times between completions at each server."""
        by_server: dict[str, list[float]] = {}
        for row in self.rows:
            if row.is_completed:
                by_server.setdefault(row.server, []).append(row.ended_seconds)
        count = sum(map(len, by_server.values()))
        return math.hypot(*(_gap_error(each) * len(each) for each in by_server.values())) / max(1, count)


@dataclass
class LoadRun:
    """A load test so far. A partial run was stopped by a signal if `was_stopped`; otherwise no server answered any
    more."""

    plan: LoadPlan
    clock: RunClock
    facts: list[ServerFacts]
    trace: GpuTrace
    levels: list[LevelRun]
    lateness: list[float]
    unfinished: int = 0
    is_partial: bool = False
    was_stopped: bool = False
    warnings: list[str] = field(default_factory=list)
    warmup_seconds: list[float] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return [row for level in self.levels for row in level.rows]


def figures(rows: Sequence[Row], wall_clock_sec: float) -> dict[str, Any]:
    """Counts, durations and throughput. Durations are those of completed prompts; None where there is none."""
    completed = [row for row in rows if row.is_completed]
    images = sum(row.images for row in completed)
    found: dict[str, Any] = {
        "total_jobs": len(rows),
        "completed": len(completed),
        "failed": sum(row.status is RowStatus.FAILED for row in rows),
        "timeouts": sum(row.status is RowStatus.TIMEOUT for row in rows),
        "images": images,
        "images_per_minute": images / wall_clock_sec * 60 if wall_clock_sec > 0 else 0.0,
        "success_rate": len(completed) / len(rows) if rows else 0.0,
        "cached_jobs": sum(row.cached for row in completed),
        "wall_clock_sec": wall_clock_sec,
        "max_duration_sec": max((row.duration_sec for row in completed if row.duration_sec is not None), default=None),
    }
    for part in ("duration_sec", "queue_sec", "exec_sec", "transfer_sec"):
        values = [value for row in completed if (value := getattr(row, part)) is not None]
        found[f"avg_{part}"] = statistics.fmean(values) if values else None
        for name, share in PERCENTILES.items():
            found[f"{name}_{part}"] = percentile(values, share) if values else None
    return found


def short_figures(rows: Sequence[Row], wall_clock_sec: float) -> dict[str, Any]:
    found = figures(rows, wall_clock_sec)
    return {key: found[key] for key in Figures.model_fields}


def _gap_error(moments: Sequence[float]) -> float:
    """The standard error of the mean time between moments, as a share of it."""
    gaps = [later - sooner for sooner, later in itertools.pairwise(sorted(moments))]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return statistics.stdev(gaps) / mean / math.sqrt(len(gaps)) if len(gaps) > 1 and mean > 0 else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0 to 1) of the values lies, linear between neighbours, as numpy has it."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
