"""What findings come to, and how stages and recovery are counted."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.chaos.findings import Findings, ScenarioOutcome, judge

NOON = 1_800_000_000.0


def found(*passed: bool) -> Findings:
    findings = Findings()
    for number, each in enumerate(passed):
        findings.check(f"thing {number}", "fine", "broken", each)
    return findings


def test_every_check_must_pass() -> None:
    assert judge(found(True, True), 120) == (ScenarioOutcome.PASSED, "all 2 checks passed")
    assert judge(found(True, False), 120) == (ScenarioOutcome.FAILED, "thing 1: expected fine, saw broken")


def test_the_first_that_failed_is_named_and_the_others_are_counted() -> None:
    word, reason = judge(found(False, True, False, False), 120)
    assert (word, reason) == (ScenarioOutcome.FAILED, "thing 0: expected fine, saw broken, and 2 more")


def test_nothing_checked_is_nothing_shown() -> None:
    assert judge(Findings(), 120)[0] is ScenarioOutcome.FAILED


@pytest.mark.parametrize(
    ("seconds", "word"),
    [(119.9, ScenarioOutcome.PASSED), (120.0, ScenarioOutcome.PASSED), (120.1, ScenarioOutcome.FAILED)],
)
def test_recovery_is_held_to_its_target(seconds: float, word: ScenarioOutcome) -> None:
    findings = found(True)
    findings.begin(NOON, "it breaks")
    findings.recovered(NOON + seconds)
    given, reason = judge(findings, 120)
    assert given is word
    assert f"{seconds:.1f} s" in reason


def test_stages_are_counted_from_the_fault() -> None:
    findings = found(True)
    findings.begin(NOON, "it breaks")
    findings.stage("refill", NOON + 3.25, "it goes on")
    findings.stage("alert", NOON + 0.5, "someone is told")
    findings.stage("requeue", None, "it never was")
    stages = [(each.stage, each.seconds) for each in findings.stages]
    assert stages == [("fault", 0.0), ("refill", 3.25), ("alert", 0.5)]
    assert findings.stages[0].ts == "2027-01-15T08:00:00.000Z"


def test_recovery_is_unknown_without_a_fault_or_an_end() -> None:
    findings = Findings()
    findings.recovered(NOON)
    assert findings.recovery_sec is None
    findings.begin(NOON, "it breaks")
    findings.recovered(None)
    assert findings.recovery_sec is None
