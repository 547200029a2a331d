"""The report of a chaos run."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from comfyui_agent.lab.reports.environment import Environment, ReportKind
from comfyui_agent.lab.reports.fields import Count, Flag, Number, OptionalText, Part, Text


class Check(Part):
    what: Text = ""
    expected: Text = ""
    seen: Text = ""
    passed: Flag = False


class Stage(Part):
    """When something happened, in seconds since the fault."""

    stage: Text = ""
    seconds: Number = None
    ts: Text = ""
    what: Text = ""


class PageCounts(Part):
    total: Count = 0
    done: Count = 0
    failed: Count = 0


class ScenarioResult(Part):
    """How one scenario ended. `verdict` is a ScenarioOutcome."""

    scenario: Text = ""
    verdict: Text = ""
    reason: Text = ""
    expected: Text = ""
    seconds: Number = None
    recovery_sec: Number = None
    checks: list[Check] = Field(default_factory=list)
    stages: list[Stage] = Field(default_factory=list)
    jobs: PageCounts = Field(default_factory=PageCounts)


class ChaosSummary(Part):
    kind: OptionalText = None
    total: Count
    passed: Count = 0
    failed: Count = 0
    skipped: Count = 0
    verdict: Text = ""
    recovery_sec: Number = None
    wall_clock_sec: Number = None
    partial: Flag = False


class ChaosReport(Part):
    kind: ClassVar[ReportKind] = ReportKind.CHAOS

    path: Path = Field(default=Path("chaos.json"), exclude=True)
    summary: ChaosSummary
    results: list[ScenarioResult] = Field(default_factory=list)
    environment: Environment = Field(default_factory=Environment)

    @property
    def is_partial(self) -> bool:
        return self.summary.partial
