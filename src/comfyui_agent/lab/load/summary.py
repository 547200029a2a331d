"""What the rows of a load test come to. Pure: rows and times in, figures out."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.lab.load.rows import Row, RowStatus
from comfyui_agent.lab.measurement.statistics import percentile

DURATIONS = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True)
class LevelRun:
    """What one level of a test brought, and how long it took from its first post to its last result."""

    level: float
    rows: tuple[Row, ...]
    wall_clock_sec: float
    is_whole: bool = True
    """Whether it came to its end: one that was stopped says nothing about its level."""

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
        return math.sqrt(sum((_unsteadiness(each) * len(each)) ** 2 for each in by_server.values())) / max(1, count)


def _unsteadiness(moments: Sequence[float]) -> float:
    """The standard error of the mean time between moments, as a share of it."""
    gaps = [later - sooner for sooner, later in itertools.pairwise(sorted(moments))]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return statistics.stdev(gaps) / mean / math.sqrt(len(gaps)) if len(gaps) > 1 and mean > 0 else 0.0


def figures(rows: Sequence[Row], wall_clock_sec: float) -> dict[str, Any]:
    """Counts, durations and throughput. Durations are those of completed prompts; None where there is none."""
    completed = [row for row in rows if row.is_completed]
    durations = _known(row.duration_sec for row in completed)
    found: dict[str, Any] = counts(rows)
    found["avg_duration_sec"] = _mean(durations)
    found |= {f"{name}_duration_sec": _percentile(durations, share) for name, share in DURATIONS}
    found["max_duration_sec"] = _rounded(max(durations)) if durations else None
    images = sum(row.images for row in completed)
    found["images"] = images
    found["images_per_minute"] = _rounded(images / wall_clock_sec * 60) if wall_clock_sec > 0 else 0.0
    found["success_rate"] = _rounded(len(completed) / len(rows)) if rows else 0.0
    found["cached_jobs"] = sum(row.cached for row in completed)
    found["wall_clock_sec"] = _rounded(wall_clock_sec)
    for part in ("queue", "exec", "transfer"):
        values = _known(getattr(row, f"{part}_sec") for row in completed)
        found[f"avg_{part}_sec"] = _mean(values)
        found |= {f"{name}_{part}_sec": _percentile(values, share) for name, share in DURATIONS}
    return found


def counts(rows: Sequence[Row]) -> dict[str, Any]:
    """`total_jobs` is the sum of the three others."""
    return {
        "total_jobs": len(rows),
        "completed": sum(row.is_completed for row in rows),
        "failed": sum(row.status is RowStatus.FAILED for row in rows),
        "timeouts": sum(row.status is RowStatus.TIMEOUT for row in rows),
    }


SHORT = (
    *("total_jobs", "completed", "failed", "timeouts", "images_per_minute", "success_rate", "p50_duration_sec"),
    *("p95_duration_sec", "cached_jobs", "wall_clock_sec"),
)


def short_figures(rows: Sequence[Row], wall_clock_sec: float) -> dict[str, Any]:
    """What a line of a table needs."""
    found = figures(rows, wall_clock_sec)
    return {key: found[key] for key in SHORT}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return _rounded(sum(values) / len(values)) if values else None


def _percentile(values: Sequence[float], share: float) -> float | None:
    return _rounded(percentile(values, share)) if values else None


def _rounded(value: float) -> float:
    return round(value, 6)
