"""One level of a load test as it is judged and compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.measurement.statistics import percentile
from comfyui_agent.lab.reports.load import LoadReport, Row, RowStatus

MOST_CACHED = 0.1
"""The share of answers from the cache above which a run measured the cache."""


@dataclass(frozen=True)
class Sample:
    """The prompts of one level. Answers from the cache are counted, and left out of all figures."""

    rows: tuple[Row, ...]
    wall_clock_sec: float
    level: float = 0.0
    where: str = ""
    """Such as `at 4 prompts at once`; empty for a run with one level."""
    is_partial: bool = False
    unfinished: int = 0

    @cached_property
    def rendered(self) -> list[Row]:
        return [row for row in self.rows if row.is_completed and not row.cached]

    @cached_property
    def completed(self) -> int:
        return sum(row.is_completed for row in self.rows)

    @property
    def cached(self) -> int:
        return self.completed - len(self.rendered)

    @property
    def is_mostly_rendered(self) -> bool:
        return self.cached <= MOST_CACHED * self.completed

    @property
    def worked_on(self) -> int:
        """Prompts that a server had to work on."""
        return len(self.rows) - self.cached

    @property
    def failed(self) -> int:
        return len(self.rows) - self.completed

    @property
    def images(self) -> int:
        return sum(row.images for row in self.rendered)

    @property
    def images_per_minute(self) -> float | None:
        return self.images / self.wall_clock_sec * 60 if self.wall_clock_sec > 0 and self.rows else None

    @property
    def error_rate(self) -> float | None:
        return self.failed / self.worked_on if self.worked_on else None

    @property
    def timeouts(self) -> list[Row]:
        return [row for row in self.rows if row.status is RowStatus.TIMEOUT]

    @cached_property
    def latencies(self) -> list[float]:
        """Of rendered prompts and of timeouts: those took at least as long as they were waited for."""
        return [row.duration_sec for row in (*self.rendered, *self.timeouts) if row.duration_sec is not None]

    @cached_property
    def p95(self) -> float | None:
        return percentile(self.latencies, 0.95) if self.latencies else None

    @property
    def offered_per_minute(self) -> float | None:
        """Images that were asked for each minute; None if the prompts do not say when they were sent."""
        starts = [row.sent_seconds for row in self.rows]
        span = max(starts, default=0.0) - min(starts, default=0.0)
        if span <= 0 or not self.rendered:
            return None
        return (len(starts) - 1) / span * 60 * self.images / len(self.rendered)


def samples_of(report: LoadReport) -> list[Sample]:
    """Each level of a load test, from the lowest. Of a run that was stopped, the last level is partial."""
    levels = [(each, float(each.level or 0.0)) for each in report.summary.levels]
    known = [
        (each, level, rows)
        for each, level in levels
        if (rows := tuple(row for row in report.rows if math.isclose(row.level or 0.0, level, rel_tol=1e-5)))
    ]
    if len(known) < 2:
        level = known[0][1] if known else 0.0
        wall, partial, unfinished = report.wall_clock_sec, report.is_partial, report.summary.unfinished
        return [Sample(report.rows, wall, level, "", partial, unfinished)]
    last = max(known, key=lambda found: max(row.sent_seconds for row in found[2]))[0]
    return [
        Sample(
            rows,
            each.wall_clock_sec or 0.0,
            level,
            f"at {level_text(level, each.unit)}",
            report.is_partial and each is last,
            report.summary.unfinished if each is last else 0,
        )
        for each, level, rows in sorted(known, key=lambda found: found[1])
    ]
