"""The figures of a load test beside their targets, judged as `e3 sla check` judges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.pages.rendering import Mark
from comfyui_agent.lab.quantities import rate, seconds, share, wanted, whole
from comfyui_agent.lab.reports.load import LoadReport, LoadSummary
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.lab.sla.review import judge_recovery

FORMATS: dict[Target, Callable[[float | None], str]] = {
    Target.THROUGHPUT: rate,
    Target.LATENCY: seconds,
    Target.ERRORS: share,
    Target.CONCURRENCY: whole,
    Target.RECOVERY: seconds,
}
TONES = {TargetVerdict.MET: "good", TargetVerdict.MISSED: "bad", TargetVerdict.NOT_MEASURED: "dim"}


@dataclass(frozen=True)
class TargetFigure:
    """A figure that a target is about, and the finding on it if there is one."""

    target: Target
    value: float | None
    finding: Finding | None = None

    @property
    def text(self) -> str:
        return FORMATS[self.target](self.value)

    @property
    def below(self) -> Mark | None:
        """The verdict and what was wanted."""
        if self.finding is None:
            return None
        sign = "≥" if self.target.is_floor else "≤"
        asked = f"{sign} {wanted(FORMATS[self.target](self.finding.wanted))}".replace(" ", "\N{NO-BREAK SPACE}")
        return Mark(TONES[self.finding.verdict], f"{self.finding.verdict}, {asked}")


def target_figures(report: LoadReport) -> list[TargetFigure]:
    """The figures that a load test has targets for, without those that it did not measure."""
    findings = {finding.target: finding for finding in _findings(report)}
    found = []
    for target in FORMATS:
        finding = findings.get(target)
        value = finding.measured if finding is not None else None
        value = _value(target, report.summary) if value is None else value
        if value is not None or finding is not None:
            found.append(TargetFigure(target, value, finding))
    return found


def against(value: float, target: float | None) -> str:
    """Seconds that should not be above their target, in the words of a title."""
    if target is None:
        return seconds(value)
    return f"{seconds(value)}, {'within' if value <= target else 'above'} the target of {wanted(seconds(target))}"


def _value(target: Target, summary: LoadSummary) -> float | None:
    if target is Target.ERRORS:
        return (summary.failed + summary.timeouts) / summary.total_jobs if summary.total_jobs else None
    values = {
        Target.THROUGHPUT: summary.images_per_minute,
        Target.LATENCY: summary.p95_duration_sec,
        Target.CONCURRENCY: summary.concurrent_books,
        Target.RECOVERY: summary.recovery_sec,
    }
    return values.get(target)


def _findings(report: LoadReport) -> list[Finding]:
    """The findings on the report's own targets; none if it has no targets or no jobs."""
    if not report.environment.sla or not report.results:
        return []
    targets = Sla.model_validate(report.environment.sla)
    recovery = judge_recovery(report, targets)
    return [*judge_load(report, targets), *([recovery] if recovery else [])]
