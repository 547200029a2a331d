"""Targets beside what was measured, judged as `e3 sla check` judges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.load.reports import Report, ReportKind
from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.markup import Html
from comfyui_agent.lab.pages.page import Tile, verdict
from comfyui_agent.lab.pages.quantities import DASH, rate, seconds, share, wanted, whole
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.lab.sla.recovery import judge_recovery
from comfyui_agent.lab.sla.verdicts import Finding, Target, TargetVerdict

Wording = Callable[[float | None], str]
FIGURES: Mapping[Target, tuple[str, Wording]] = {
    Target.THROUGHPUT: ("images_per_minute", rate),
    Target.LATENCY: ("p95_duration_sec", seconds),
    Target.ERRORS: ("", share),
    Target.CONCURRENCY: ("concurrent_books", whole),
    Target.RECOVERY: ("recovery_sec", seconds),
}
"""Where the summary has what a target is about, and how it is said."""
TONES = {TargetVerdict.MET: "good", TargetVerdict.MISSED: "bad", TargetVerdict.NOT_MEASURED: "dim"}


@dataclass(frozen=True)
class Judged:
    """A figure, and the finding on its target if there is one."""

    target: Target
    value: float | None
    finding: Finding | None = None

    @property
    def name(self) -> str:
        return self.target.label

    @property
    def verdict(self) -> TargetVerdict | None:
        return self.finding.verdict if self.finding else None

    def tile(self) -> Tile:
        """The figure, and below it what it should be."""
        return Tile(self.name, FIGURES[self.target][1](self.value), self._below())

    def _below(self) -> Html | str:
        if self.finding is None:
            return ""
        sign = "≥" if self.target.is_floor else "≤"
        asked = f"{sign} {wanted(FIGURES[self.target][1](self.finding.wanted))}".replace(" ", "\N{NO-BREAK SPACE}")
        return verdict(TONES[self.finding.verdict], f"{self.finding.verdict}, {asked}")


def judged(report: Mapping[str, Any]) -> list[Judged]:
    """The figures that a load test has targets for; those that it did not measure are left out."""
    summary = facts.part(report.get("summary"))
    findings = {finding.target: finding for finding in _findings(report)}
    found = []
    for target, (key, _) in FIGURES.items():
        finding = findings.get(target)
        value = finding.measured if finding else None
        if value is None:
            value = facts.number(summary.get(key)) if key else error_share(summary)
        if value is not None or finding is not None:
            found.append(Judged(target, value, finding))
    return found


def error_share(summary: Mapping[str, Any]) -> float | None:
    """Jobs that failed or timed out, of all."""
    total = facts.amount(summary.get("total_jobs"))
    failed = facts.amount(summary.get("failed")) + facts.amount(summary.get("timeouts"))
    return failed / total if total else None


def against(value: float | None, target: float | None, wording: Wording = seconds) -> str:
    """A figure that should not be above its target, in the words of a title."""
    if value is None or target is None:
        return wording(value) if value is not None else DASH
    return f"{wording(value)}, {'within' if value <= target else 'above'} the target of {wanted(wording(target))}"


def _findings(report: Mapping[str, Any]) -> list[Finding]:
    """What the report says of its own targets; nothing if it has none, or no jobs."""
    environment, results = facts.part(report.get("environment")), facts.rows(report.get("results"))
    targets = _sla(facts.part(environment.get("sla")))
    if targets is None or not results:
        return []
    document = Report(Path("report"), ReportKind.LOADTEST, facts.part(report.get("summary")), results, environment)
    recovery = judge_recovery(document, targets)
    return [*judge_load(document, targets), *([recovery] if recovery else [])]


def _sla(written: Mapping[str, Any]) -> Sla | None:
    known = {key: value for key, value in written.items() if key in Sla.model_fields}
    try:
        return Sla.model_validate(known) if known else None
    except ValidationError:
        return None
