"""What a load test has measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.lab.load.plan import LoadPlan
from comfyui_agent.lab.load.rows import Row, RunClock
from comfyui_agent.lab.load.summary import LevelRun
from comfyui_agent.lab.measurement.gpu import GpuTrace


@dataclass
class LoadRun:
    """What a load test has measured so far; a report can be made of it at any time."""

    plan: LoadPlan
    clock: RunClock
    facts: list[dict[str, Any]]
    trace: GpuTrace
    levels: list[LevelRun]
    lateness: list[float]
    unfinished: int = 0
    is_partial: bool = False
    was_stopped: bool = False
    """By a signal; otherwise it is partial because there was nobody left to ask."""
    warnings: list[str] = field(default_factory=list)
    warmup_seconds: list[float] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return [row for level in self.levels for row in level.rows]
