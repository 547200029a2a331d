"""What chaos says of the time to recover."""

from __future__ import annotations

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.reports.chaos import ChaosReport, ScenarioResult
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict, quantity

NOTHING_BREAKS = frozenset({"prompt-validation", "artificial-latency"})
"""Scenarios after which there is nothing to recover from."""


def judge_recovery(report: LoadReport | ChaosReport, targets: Sla) -> Finding | None:
    """The longest time from a fault to work that goes on as before; None if no fault was made.

    A service that never came back has missed the target.
    """
    scenarios = _scenarios(report)
    if not scenarios:
        return None
    known = {_name(each): each.recovery_sec for each in scenarios if each.recovery_sec is not None}
    slowest = max(known, key=lambda name: known[name], default="")
    never = [
        each
        for each in scenarios
        if each.recovery_sec is None and each.verdict == "failed" and _name(each) not in NOTHING_BREAKS
    ]
    if never:
        reason = " ".join((never[0].reason or "no reason was noted").split()).rstrip(".")
        why = f"{_name(never[0])} failed, and no recovery was seen: {reason}."
        return Finding.on(Target.RECOVERY, targets, known.get(slowest), TargetVerdict.MISSED, why)
    if not known:
        why = f"No recovery was measured by {', '.join(map(_name, scenarios))}."
        return Finding.on(Target.RECOVERY, targets, None, TargetVerdict.NOT_MEASURED, why)
    seen = f"{slowest} took {quantity(known[slowest], Target.RECOVERY, targets.recovery_seconds)} to recover"
    seen += f", the longest of {len(known)} scenarios" if len(known) > 1 else ""
    skipped = [_name(each) for each in scenarios if each.verdict == "skipped"]
    if skipped and not report.is_partial and known[slowest] <= targets.recovery_seconds:
        seen += f"; skipped: {', '.join(skipped)}"
    return Finding.judge(Target.RECOVERY, targets, known[slowest], seen, is_partial=report.is_partial)


def _scenarios(report: LoadReport | ChaosReport) -> list[ScenarioResult]:
    if isinstance(report, ChaosReport):
        return report.results
    scenario, seconds = report.summary.scenario, report.summary.recovery_sec
    if scenario is not None:
        return [scenario.model_copy(update={"recovery_sec": seconds})]
    return [] if seconds is None else [ScenarioResult(scenario="the fault", recovery_sec=seconds)]


def _name(scenario: ScenarioResult) -> str:
    return scenario.scenario[:60] or "a scenario"
