"""The page of a chaos run: a verdict for each scenario, and the evidence for it."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.lab.pages.figures import Bar, Lane, Lanes, Target
from comfyui_agent.lab.pages.rendering import render
from comfyui_agent.lab.quantities import against, seconds, wanted
from comfyui_agent.lab.reports.chaos import ChaosReport, ScenarioResult
from comfyui_agent.lab.reports.fields import as_number


def chaos_page(report: ChaosReport, json_name: str = "") -> str:
    target = as_number(report.environment.sla.get("recovery_seconds"))
    return render(
        "chaos.html",
        results=report.results,
        summary=report.summary,
        target=target,
        scenarios=[(result, stages_of(result, target)) for result in report.results],
        recoveries=_recoveries(report.results, target),
        environment=report.environment,
        json_name=json_name,
    )


def stages_of(result: ScenarioResult, target: float | None) -> Lanes | None:
    """When each stage of a scenario happened; None if nothing was noted."""
    known = [(stage.seconds, stage.stage) for stage in result.stages if stage.seconds is not None]
    if not known:
        return None
    known.sort(key=lambda stage: stage[0])
    last, name = known[-1]
    return Lanes(
        f"The last stage, {name}, came {seconds(last)} after the fault"
        if result.recovery_sec is None
        else f"Work went on after {against(result.recovery_sec, target)}",
        "Time since the fault (s)",
        [Lane(stage, [seconds(at)], [Bar("solid", min(0, at), max(0, at))]) for at, stage in known],
        target=None if result.recovery_sec is None else _target(target),
    )


def _target(value: float | None) -> Target | None:
    return None if value is None else Target(value, f"target {wanted(seconds(value))}")


def _recoveries(results: Sequence[ScenarioResult], target: float | None) -> Lanes | None:
    """How long each scenario took to recover; None if fewer than two were measured."""
    known = {result.scenario: result.recovery_sec for result in results if result.recovery_sec is not None}
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda name: known[name])
    return Lanes(
        f"Slowest to recover is {slowest}: {against(known[slowest], target)}",
        "Recovery (s)",
        [Lane(name, [seconds(value)], [Bar("solid", 0, value)]) for name, value in known.items()],
        target=_target(target),
    )
