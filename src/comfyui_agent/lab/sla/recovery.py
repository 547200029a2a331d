"""What chaos says of the time to recover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.reports import Report, ReportKind, as_number
from comfyui_agent.lab.sla.verdicts import Finding, Target, Verdict, quantity

NOTHING_BREAKS = frozenset({"prompt-validation", "artificial-latency"})
"""Scenarios after which there is nothing to recover from."""


def judge_recovery(report: Report, targets: Sla) -> Finding:
    """The longest time from a fault to work that goes on as before. A service that never came back has missed it."""
    scenarios = _scenarios(report)
    times = {_name(each): as_number(each.get("recovery_sec")) for each in scenarios}
    known = {name: seconds for name, seconds in times.items() if seconds is not None}
    never = [each for each in scenarios if times[_name(each)] is None and _did_not_recover(each)]
    wanted = targets.recovery_seconds
    slowest = max(known, key=lambda name: known[name], default="")

    def finding(verdict: Verdict, sentence: str) -> Finding:
        return Finding(Target.RECOVERY, wanted, known.get(slowest), verdict, sentence)

    if never:
        reason = " ".join(str(never[0].get("reason") or "no reason was noted").split()).rstrip(".")
        return finding(Verdict.MISSED, f"{_name(never[0])} failed, and no recovery was seen: {reason}.")
    if not known:
        why = "no fault was made" if not scenarios else "none of its scenarios measured one"
        return finding(Verdict.NOT_MEASURED, f"No recovery was measured: {why}.")
    told = f"{slowest} took {quantity(known[slowest], Target.RECOVERY, wanted)} to recover"
    others = f", the longest of {len(known)} scenarios" if len(known) > 1 else ""
    if known[slowest] > wanted:
        return finding(Verdict.MISSED, f"{told}{others}.")
    return finding(Verdict.MET, f"{told}{others}.")


def _scenarios(report: Report) -> list[Mapping[str, Any]]:
    if report.kind is ReportKind.CHAOS:
        return list(report.results)
    scenario = report.summary.get("scenario")
    own = [{**scenario, "recovery_sec": report.summary.get("recovery_sec")}] if isinstance(scenario, dict) else []
    if not own and as_number(report.summary.get("recovery_sec")) is not None:
        return [{"scenario": "the fault", "recovery_sec": report.summary.get("recovery_sec")}]
    return own


def _name(scenario: Mapping[str, Any]) -> str:
    return str(scenario.get("scenario") or scenario.get("name") or "a scenario")[:60]


def _did_not_recover(scenario: Mapping[str, Any]) -> bool:
    return scenario.get("verdict") == "failed" and _name(scenario) not in NOTHING_BREAKS
