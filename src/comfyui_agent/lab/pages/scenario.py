"""One chaos scenario: its verdict, what was expected, the checks, and when each stage happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.markup import Html, joined
from comfyui_agent.lab.pages.page import figure, paragraph, section, table, verdict
from comfyui_agent.lab.pages.quantities import clock, said, seconds
from comfyui_agent.lab.pages.stages import Stage, Stages
from comfyui_agent.lab.pages.targets import against

TONES = {"passed": "good", "failed": "bad"}


def scenario_section(result: Mapping[str, Any], sla: Mapping[str, Any]) -> Html:
    """A scenario with all that is known of it."""
    name = said(result.get("scenario", result.get("name")))
    return section(
        name,
        paragraph(joined(judged(result), *_behind(": ", result.get("reason")))),
        paragraph(joined(*_behind("Expected: ", result.get("expected")))),
        figure(_stages(result, facts.number(sla.get("recovery_seconds")))),
        _stage_table(result),
        _checks(result),
        paragraph(_jobs(facts.part(result.get("jobs")))),
    )


def judged(result: Mapping[str, Any]) -> Html:
    """The verdict with its mark."""
    word = facts.text(result.get("verdict"))
    return verdict(TONES.get(word, "dim"), word or "no verdict")


def _behind(prefix: str, value: Any) -> list[str]:
    text = facts.text(value).strip()
    return [prefix, text] if text else []


def _stages(result: Mapping[str, Any], target: float | None) -> Stages | None:
    found = []
    for row in facts.rows(result.get("stages")):
        at = facts.number(row.get("seconds"))
        if at is not None:
            found.append(Stage(said(row.get("stage")), at))
    if not found:
        return None
    recovery = facts.number(result.get("recovery_sec"))
    if recovery is not None:
        title = f"Work went on after {against(recovery, target)}"
    else:
        last = max(found, key=lambda stage: stage.seconds)
        title = f"The last stage, {last.name}, came {seconds(last.seconds)} after the fault"
    return Stages(
        title,
        "When each stage happened, counted from the moment the fault was made.",
        sorted(found, key=lambda stage: stage.seconds),
        target if recovery is not None else None,
    )


def _stage_table(result: Mapping[str, Any]) -> Html:
    rows = [
        [said(row.get("stage")), seconds(facts.number(row.get("seconds"))), said(row.get("what")), clock(row.get("ts"))]
        for row in facts.rows(result.get("stages"))
    ]
    return table("Stages", ["Stage", "After the fault", "What happened", "When (UTC)"], rows, texts=(0, 2, 3))


def _checks(result: Mapping[str, Any]) -> Html:
    rows = [
        [
            verdict("good", "held") if row.get("passed") is True else verdict("bad", "failed"),
            said(row.get("what")),
            said(row.get("expected")),
            said(row.get("seen")),
        ]
        for row in facts.rows(result.get("checks"))
    ]
    return table("Checks", ["Verdict", "What", "Expected", "Seen"], rows, texts=(0, 1, 2, 3))


def _jobs(jobs: Mapping[str, Any]) -> str:
    if not jobs:
        return ""
    total, done, failed = (facts.amount(jobs.get(key)) for key in ("total", "done", "failed"))
    return f"{counted(total, 'job')} in this scenario: {done:,} done, {failed:,} failed."
