"""Targets and the verdicts on them, as `e3 sla check --json` prints them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import TextEnum, counted
from comfyui_agent.lab.quantities import listed
from comfyui_agent.lab.reports.fields import Number, OptionalText, Part
from comfyui_agent.lab.reports.load import LoadSummary

SLACK = 1e-9
PARTIAL = "the run was stopped before its end, which can show a miss but not that a target is met."


class TargetVerdict(TextEnum):
    """What can be said of a target. What was not measured is neither met nor missed."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


class Target(TextEnum):
    """What is judged: the keys of `sla` in the settings, and spikes of errors."""

    THROUGHPUT = "images_per_minute"
    CONCURRENCY = "concurrent_books"
    LATENCY = "p95_seconds"
    ERRORS = "error_rate"
    RECOVERY = "recovery_seconds"
    SPIKES = "error_spikes"

    @property
    def label(self) -> str:
        return LABELS[self][0]

    @property
    def unit(self) -> str:
        return LABELS[self][1]

    @property
    def is_floor(self) -> bool:
        """Whether more is better."""
        return self in (Target.THROUGHPUT, Target.CONCURRENCY)

    def wanted(self, targets: Sla) -> float:
        """The target as a figure. No spike at all is wanted."""
        return 0.0 if self is Target.SPIKES else float(getattr(targets, str(self)))


LABELS = {
    Target.THROUGHPUT: ("Throughput", "images/min"),
    Target.CONCURRENCY: ("Books at once", "books"),
    Target.LATENCY: ("Latency p95", "s"),
    Target.ERRORS: ("Errors", "share"),
    Target.RECOVERY: ("Recovery", "s"),
    Target.SPIKES: ("Error spikes", "spikes"),
}


class Finding(Part):
    """A verdict on one target, with the figure it rests on and a sentence for people."""

    target: Target
    wanted: float
    measured: Number
    unit: str
    verdict: TargetVerdict
    sentence: str
    jobs_needed: int | None = None
    """How many jobs it takes to judge this, where there were too few."""

    @classmethod
    def on(
        cls, target: Target, targets: Sla, measured: float | None, verdict: TargetVerdict, sentence: str, **more: int
    ) -> Finding:
        wanted, unit = target.wanted(targets), target.unit
        return cls(
            target=target, wanted=wanted, measured=measured, unit=unit, verdict=verdict, sentence=sentence, **more
        )

    @classmethod
    def judge(
        cls,
        target: Target,
        targets: Sla,
        measured: float,
        seen: str,
        *,
        is_partial: bool,
        few: str = "",
        jobs_needed: int = 0,
    ) -> Finding:
        """Hold a figure against its target. A miss counts always. That the target is met counts only for a whole run
        with enough jobs; `few` says that there were too few."""
        wanted = target.wanted(targets)
        if (measured < wanted - SLACK) if target.is_floor else (measured > wanted + SLACK):
            return cls.on(target, targets, measured, TargetVerdict.MISSED, f"{seen}.")
        if few:
            return cls.on(target, targets, measured, TargetVerdict.NOT_MEASURED, few, jobs_needed=jobs_needed)
        if is_partial:
            return cls.on(target, targets, measured, TargetVerdict.NOT_MEASURED, f"{seen}; {PARTIAL}")
        return cls.on(target, targets, measured, TargetVerdict.MET, f"{seen}.")

    @property
    def wanted_text(self) -> str:
        sign = "≥ " if self.target.is_floor else "≤ " if self.wanted else ""
        return sign + quantity(self.wanted, self.target)

    @property
    def measured_text(self) -> str:
        return "-" if self.measured is None else quantity(self.measured, self.target, beside=self.wanted)


class ReviewedReport(Part):
    """A report that was judged, and what a reader should know about it."""

    path: str
    kind: str
    started_at: OptionalText
    workflow: OptionalText
    notes: list[str]

    @property
    def name(self) -> str:
        return PurePath(self.path).name


def worst(findings: Sequence[Finding]) -> Finding:
    """Of several findings on one target: a miss first, then what was measured, and of that the poorest figure."""

    def badness(finding: Finding) -> tuple[int, float]:
        order = (TargetVerdict.NOT_MEASURED, TargetVerdict.MET, TargetVerdict.MISSED).index(finding.verdict)
        if finding.measured is None:
            return order, -math.inf
        return order, -finding.measured if finding.target.is_floor else finding.measured

    return max(findings, key=badness)


def overall(findings: Iterable[Finding]) -> TargetVerdict:
    """Met only if all of it is met."""
    verdicts = {finding.verdict for finding in findings}
    for verdict in (TargetVerdict.MISSED, TargetVerdict.NOT_MEASURED):
        if verdict in verdicts:
            return verdict
    return TargetVerdict.MET if verdicts else TargetVerdict.NOT_MEASURED


def verdicts_in(summary: LoadSummary) -> dict[Target, TargetVerdict]:
    """The verdicts that a load test's summary holds; unknown words are left out."""
    found: dict[Target, TargetVerdict] = {}
    for key, verdict in summary.targets.items():
        with contextlib.suppress(ValueError):
            found[Target(key)] = TargetVerdict(verdict)
    return found


def standing(verdicts: Mapping[Target, TargetVerdict]) -> str:
    """`1 target missed (Latency p95), 2 met`, for one line; empty if nothing was judged."""
    met, missed = (
        [target.label for target, each in verdicts.items() if each is verdict]
        for verdict in (TargetVerdict.MET, TargetVerdict.MISSED)
    )
    if missed:
        return f"{counted(len(missed), 'target')} missed ({listed(missed)}), {len(met)} met"
    return f"{counted(len(met), 'target')} met ({listed(met)}), none missed" if met else ""


def quantity(value: float, target: Target, beside: float | None = None) -> str:
    """A figure with its unit, and with as many digits as it takes to tell it from the target beside it."""
    if target.unit == "share":
        return f"{_digits(value * 100, None if beside is None else beside * 100)} %"
    is_one = value == 1 and target in (Target.CONCURRENCY, Target.SPIKES)
    return f"{_digits(value, beside)} {target.unit.removesuffix('s') if is_one else target.unit}"


def _digits(value: float, beside: float | None) -> str:
    for count in range(3, 12):
        text = _plain(value, count)
        if beside is None or value == beside or text != _plain(beside, count):
            return text
    return repr(value)


def _plain(value: float, count: int) -> str:
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    text = f"{value:.{count}g}"
    return f"{value:.0f}" if "e+" in text else text
