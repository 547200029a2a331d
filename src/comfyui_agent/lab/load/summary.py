"""The figures of a load test, from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from comfyui_agent.lab.measurement.statistics import percentile
from comfyui_agent.lab.reports.load import Figures, Row, RowStatus

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


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
        found[f"avg_{part}"] = fmean(values) if values else None
        for name, share in PERCENTILES.items():
            found[f"{name}_{part}"] = percentile(values, share) if values else None
    return found


def short_figures(rows: Sequence[Row], wall_clock_sec: float) -> dict[str, Any]:
    """The figures that a line of a table shows."""
    found = figures(rows, wall_clock_sec)
    return {key: found[key] for key in Figures.model_fields}
