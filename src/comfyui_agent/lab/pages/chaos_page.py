"""The page of a chaos run: a verdict for each scenario, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.lanes import Bar, Bars, Fill, Part
from comfyui_agent.lab.pages.markup import Html
from comfyui_agent.lab.pages.page import Page, figure, section, table, verdict
from comfyui_agent.lab.pages.quantities import date, listed, said, seconds, wanted
from comfyui_agent.lab.pages.scenario import judged, scenario_section
from comfyui_agent.lab.pages.targets import against


def chaos_page(report: Mapping[str, Any], json_name: str = "") -> str:
    """A chaos run as a page that needs nothing else. What the report lacks is shown as a dash or left out."""
    summary, environment = facts.part(report.get("summary")), facts.part(report.get("environment"))
    results, sla = facts.rows(report.get("results")), facts.part(environment.get("sla"))
    target = facts.number(sla.get("recovery_seconds"))
    took = seconds(facts.number(summary.get("wall_clock_sec")))
    return Page(
        "Chaos test",
        _title(results),
        _stands(summary, results, sla),
        f"Started {date(environment.get('started_at'))}, ran {took}.",
        [
            section("Verdicts", _overview(results), figure(_recoveries(results, target))),
            *(scenario_section(result, sla) for result in results),
        ],
        environment,
        json_name,
    ).text()


def _title(results: Sequence[Mapping[str, Any]]) -> str:
    return said(results[0].get("scenario")) if len(results) == 1 else counted(len(results), "scenario")


def _stands(summary: Mapping[str, Any], results: Sequence[Mapping[str, Any]], sla: Mapping[str, Any]) -> Html:
    named = {
        word: [said(row.get("scenario")) for row in results if row.get("verdict") == word]
        for word in ("passed", "failed", "skipped")
    }
    passed, failed, skipped = named["passed"], named["failed"], named["skipped"]
    text = f"{len(passed)} of {counted(len(results), 'scenario')} passed"
    text += f", {len(failed)} failed ({listed(failed)})" if failed else ""
    text += f", {len(skipped)} skipped ({listed(skipped)})" if skipped else ""
    recovery = facts.number(summary.get("recovery_sec"))
    if recovery is not None:
        text += f"; the slowest recovery took {against(recovery, facts.number(sla.get('recovery_seconds')))}"
    is_bad = bool(failed) or summary.get("verdict") == "failed"
    return verdict("bad" if is_bad else "good" if passed else "dim", text + ".")


def _overview(results: Sequence[Mapping[str, Any]]) -> Html:
    rows = [
        [
            said(row.get("scenario")),
            judged(row),
            seconds(facts.number(row.get("recovery_sec"))),
            seconds(facts.number(row.get("seconds"))),
            _checks(row),
            said(row.get("reason")),
        ]
        for row in results
    ]
    heads = ["Scenario", "Verdict", "Recovery", "Took", "Checks", "Reason"]
    return table("", heads, rows, texts=(0, 1, 5))


def _checks(row: Mapping[str, Any]) -> str:
    checks = facts.rows(row.get("checks"))
    return f"{sum(check.get('passed') is True for check in checks)} of {len(checks)}" if checks else said(None)


def _recoveries(results: Sequence[Mapping[str, Any]], target: float | None) -> Bars | None:
    """How long each scenario took to recover; None if fewer than two were measured."""
    found = []
    for row in results:
        recovery = facts.number(row.get("recovery_sec"))
        if recovery is not None:
            found.append((said(row.get("scenario")), recovery))
    if len(found) < 2:
        return None
    name, longest = max(found, key=lambda each: each[1])
    return Bars(
        f"Slowest to recover is {name}: {against(longest, target)}",
        "Seconds from the fault until work went on, for each scenario in which that was measured.",
        "Recovery (s)",
        [Part("recovery", Fill.SOLID)],
        [Bar(name, [value], seconds(value)) for name, value in found],
        target=target,
        target_text=f"target {wanted(seconds(target))}",
    )
