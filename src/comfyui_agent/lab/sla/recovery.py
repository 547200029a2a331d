"""What chaos says of the time to recover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.reports import Report, ReportKind, as_number
from comfyui_agent.lab.sla.load_targets import PARTIAL
from comfyui_agent.lab.sla.verdicts import Finding, Target, TargetVerdict, quantity

NOTHING_BREAKS = frozenset({"prompt-validation", "artificial-latency"})
"""Scenarios after which there is nothing to recover from."""


def judge_recovery(report: Report, targets: Sla) -> Finding | None:
    """The longest time from a fault to work that goes on as before; None if no fault was made.

    A service that never came back has missed it.
    """
    scenarios = _scenarios(report)
    if not scenarios:
        return None
    times = {_name(each): as_number(each.get("recovery_sec")) for each in scenarios}
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    never = [each for each in scenarios if times[_name(each)] is None and _did_not_recover(each)]
    wanted = targets.recovery_seconds
    slowest = max(known, key=lambda name: known[name], default="")

    def finding(verdict: TargetVerdict, sentence: str) -> Finding:
        return Finding(Target.RECOVERY, wanted, known.get(slowest), verdict, sentence)

    if never:
        reason = " ".join(str(never[0].get("reason") or "no reason was noted").split()).rstrip(".")
        return finding(TargetVerdict.MISSED, f"{_name(never[0])} failed, and no recovery was seen: {reason}.")
    if not known:
        names = ", ".join(times)
        return finding(TargetVerdict.NOT_MEASURED, f"No recovery was measured by {names}.")
    told = f"{slowest} took {quantity(known[slowest], Target.RECOVERY, wanted)} to recover"
    others = f", the longest of {len(known)} scenarios" if len(known) > 1 else ""
    if known[slowest] > wanted:
        return finding(TargetVerdict.MISSED, f"{told}{others}.")
    if report.is_partial:
        return finding(TargetVerdict.NOT_MEASURED, f"{told}{others}; {PARTIAL}")
    skipped = [_name(each) for each in scenarios if each.get("verdict") == "skipped"]
    return finding(TargetVerdict.MET, f"{told}{others}{'; skipped: ' if skipped else ''}{', '.join(skipped)}.")


def _scenarios(report: Report) -> list[Mapping[str, Any]]:
    if report.kind is ReportKind.CHAOS:
        return list(report.results)
    scenario, seconds = report.summary.get("scenario"), report.summary.get("recovery_sec")
    if isinstance(scenario, dict):
        return [{**scenario, "recovery_sec": seconds}]
    return [] if as_number(seconds) is None else [{"scenario": "the fault", "recovery_sec": seconds}]


def _name(scenario: Mapping[str, Any]) -> str:
    return str(scenario.get("scenario") or scenario.get("name") or "a scenario")[:60]


def _did_not_recover(scenario: Mapping[str, Any]) -> bool:
    return scenario.get("verdict") == "failed" and _name(scenario) not in NOTHING_BREAKS
