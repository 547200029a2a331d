"""What a load test has measured so far."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from comfyui_agent.lab.load.plan import LoadPlan
from comfyui_agent.lab.measurement.gpu import GpuTrace
from comfyui_agent.lab.measurement.moments import RunClock
from comfyui_agent.lab.reports.environment import ServerFacts
from comfyui_agent.lab.reports.load import Row


@dataclass(frozen=True)
class LevelRun:
    """The rows of one level, and how long it took from its first post to its last result."""

    level: float
    rows: tuple[Row, ...]
    wall_clock_sec: float
    is_whole: bool = True
    """Whether it came to its end. A level that was stopped says nothing about its load."""

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
        return math.sqrt(sum((_gap_error(each) * len(each)) ** 2 for each in by_server.values())) / max(1, count)


@dataclass
class LoadRun:
    """A load test. A report can be made of it at any time."""

    plan: LoadPlan
    clock: RunClock
    facts: list[ServerFacts]
    trace: GpuTrace
    levels: list[LevelRun]
    lateness: list[float]
    unfinished: int = 0
    is_partial: bool = False
    was_stopped: bool = False
    """Stopped by a signal. Otherwise a partial run ended because no server answered."""
    warnings: list[str] = field(default_factory=list)
    warmup_seconds: list[float] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return [row for level in self.levels for row in level.rows]


def _gap_error(moments: Sequence[float]) -> float:
    """The standard error of the mean time between moments, as a share of it."""
    gaps = [later - sooner for sooner, later in itertools.pairwise(sorted(moments))]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    return statistics.stdev(gaps) / mean / math.sqrt(len(gaps)) if len(gaps) > 1 and mean > 0 else 0.0
