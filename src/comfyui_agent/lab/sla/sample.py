"""What a load test says about one level of load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from comfyui_agent.lab.load.levels import level_words
from comfyui_agent.lab.load.reports import Level, Report
from comfyui_agent.lab.load.rows import Row, RowStatus
from comfyui_agent.lab.measurement.statistics import percentile

MOST_CACHED = 0.1
"""The share of answers from the cache above which a run measured the cache."""
FEWEST_FOR_P95 = 20
FEWEST_FOR_THROUGHPUT = 10
FEWEST_FOR_NO_ERRORS = 100
"""Prompts without a failure that are taken as none at all, where not even one is allowed."""


@dataclass(frozen=True)
class Sample:
    """The prompts of one level. Answers from the cache are counted, and left out of all figures."""

    rows: tuple[Row, ...]
    wall_clock_sec: float
    where: str = ""
    """Words such as `at 4 prompts at once`; empty for a run that has but one level."""
    level: float = 0.0
    is_partial: bool = False
    unfinished: int = 0

    @cached_property
    def rendered(self) -> list[Row]:
        """What was completed by rendering."""
        return [row for row in self.rows if row.is_completed and not row.cached]

    @cached_property
    def cached(self) -> int:
        return sum(row.is_completed and row.cached for row in self.rows)

    @property
    def is_mostly_real(self) -> bool:
        """Whether the servers rendered, rather than remembered."""
        completed = sum(row.is_completed for row in self.rows)
        return self.cached <= MOST_CACHED * completed

    @property
    def worked_on(self) -> int:
        """Prompts that a server had to work on."""
        return len(self.rows) - self.cached

    @property
    def failed(self) -> int:
        return sum(not row.is_completed for row in self.rows)

    @property
    def images(self) -> int:
        return sum(row.images for row in self.rendered)

    @property
    def images_per_minute(self) -> float | None:
        return self.images / self.wall_clock_sec * 60 if self.wall_clock_sec > 0 and self.rows else None

    @property
    def error_rate(self) -> float | None:
        return self.failed / self.worked_on if self.worked_on else None

    @cached_property
    def latencies(self) -> list[float]:
        """A prompt that was given up took at least as long as it was waited for."""
        counting = [*self.rendered, *(row for row in self.rows if row.status is RowStatus.TIMEOUT)]
        return [row.duration_sec for row in counting if row.duration_sec is not None]

    @cached_property
    def p95(self) -> float | None:
        return percentile(self.latencies, 0.95) if self.latencies else None

    @property
    def timeouts(self) -> int:
        return sum(row.status is RowStatus.TIMEOUT for row in self.rows)

    @property
    def offered_per_minute(self) -> float | None:
        """Images that were asked for each minute; None if the prompts do not say when they were sent."""
        starts = [row.seconds for row in self.rows]
        span = max(starts, default=0.0) - min(starts, default=0.0)
        if span <= 0 or not self.rendered:
            return None
        return (len(starts) - 1) / span * 60 * self.images / len(self.rendered)


def samples_of(report: Report) -> list[Sample]:
    """Each level of a load test, from the gentlest. Of a run that was stopped, the last level is partial."""
    levels = report.levels
    last = max(levels, key=_when)
    return [
        Sample(
            level.rows,
            level.wall_clock_sec,
            f"at {level_words(level.level, level.unit)}" if len(levels) > 1 else "",
            level.level,
            report.is_partial and level is last,
            report.unfinished if level is last else 0,
        )
        for level in levels
    ]


def jobs_for_errors(allowed: float) -> int:
    """How many prompts it takes to see a rate of errors: with fewer, a single failure is more than is allowed."""
    return FEWEST_FOR_NO_ERRORS if allowed <= 0 else max(10, math.ceil(1 / allowed - 1e-9))


def _when(level: Level) -> float:
    return max((row.seconds for row in level.rows), default=0.0)
