"""What a scenario found, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from comfyui_agent.lab.measurement.moments import utc_text


class ScenarioOutcome(str, Enum):
    """The verdict on a scenario."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Check:
    """One thing that was expected, and what was seen instead or indeed."""

    what: str
    expected: str
    seen: str
    passed: bool


@dataclass(frozen=True)
class Stage:
    """When something happened, in seconds since the fault."""

    stage: str
    seconds: float
    ts: str
    what: str


class Skipped(Exception):
    """A scenario that cannot be run here: why, and what it needs."""


@dataclass
class Findings:
    """Collected while a scenario runs. `fault_at` is when the fault came, in seconds since the epoch."""

    checks: list[Check] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    fault_at: float | None = None
    recovery_sec: float | None = None

    def check(self, what: str, expected: str, seen: object, passed: bool) -> None:
        self.checks.append(Check(what, expected, str(seen), passed))

    def begin(self, moment: float, what: str) -> None:
        """The fault comes now."""
        self.fault_at = moment
        self.stage("fault", moment, what)

    def stage(self, name: str, moment: float | None, what: str) -> None:
        """Something happened then; nothing is noted of what never did."""
        if moment is None:
            return
        seconds = moment - (self.fault_at if self.fault_at is not None else moment)
        self.stages.append(Stage(name, round(seconds, 3), utc_text(moment), what))

    def recovered(self, moment: float | None, since: float | None = None) -> None:
        """It was back at that moment; counted from the fault, or from another moment."""
        since = self.fault_at if since is None else since
        if moment is not None and since is not None:
            self.recovery_sec = round(max(0.0, moment - since), 3)


@dataclass(frozen=True)
class ScenarioVerdict:
    """How one scenario ended."""

    scenario: str
    expected: str
    word: ScenarioOutcome
    reason: str
    seconds: float
    findings: Findings
    jobs: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        stages = sorted(self.findings.stages, key=lambda stage: stage.seconds)
        return {
            "scenario": self.scenario,
            "verdict": str(self.word),
            "reason": self.reason,
            "expected": self.expected,
            "seconds": round(self.seconds, 3),
            "recovery_sec": self.findings.recovery_sec,
            "checks": [asdict(check) for check in self.findings.checks],
            "stages": [asdict(stage) for stage in stages],
            "jobs": dict(self.jobs),
        }


def judge(findings: Findings, most_recovery: float) -> tuple[ScenarioOutcome, str]:
    """Passed if every check did, and it was back within the limit; else the first that did not."""
    failed = [check for check in findings.checks if not check.passed]
    if failed:
        more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
        return ScenarioOutcome.FAILED, f"{failed[0].what}: expected {failed[0].expected}, saw {failed[0].seen}{more}"
    if not findings.checks:
        return ScenarioOutcome.FAILED, "nothing was checked"
    if findings.recovery_sec is not None and findings.recovery_sec > most_recovery:
        return (
            ScenarioOutcome.FAILED,
            f"it took {findings.recovery_sec:.1f} s to recover; the target is {most_recovery:g} s",
        )
    back = f", back after {findings.recovery_sec:.1f} s" if findings.recovery_sec is not None else ""
    return ScenarioOutcome.PASSED, f"all {len(findings.checks)} checks passed{back}"
