"""The words of a judgement: met, missed, not measured."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages.quantities import listed


class TargetVerdict(str, Enum):
    """What can be said of a target. What was not measured is neither met nor missed."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"

    def __str__(self) -> str:
        return self.value


class Target(str, Enum):
    """What is judged: the keys of `sla` in the settings, and spikes of errors."""

    THROUGHPUT = "images_per_minute"
    CONCURRENCY = "concurrent_books"
    LATENCY = "p95_seconds"
    ERRORS = "error_rate"
    RECOVERY = "recovery_seconds"
    SPIKES = "error_spikes"

    def __str__(self) -> str:
        return self.value

    @property
    def label(self) -> str:
        return LABELS[self]

    @property
    def unit(self) -> str:
        return UNITS[self]

    @property
    def is_floor(self) -> bool:
        """Whether more is better."""
        return self in (Target.THROUGHPUT, Target.CONCURRENCY)


LABELS = {
    Target.THROUGHPUT: "Throughput",
    Target.CONCURRENCY: "Books at once",
    Target.LATENCY: "Latency p95",
    Target.ERRORS: "Errors",
    Target.RECOVERY: "Recovery",
    Target.SPIKES: "Error spikes",
}
UNITS = {
    Target.THROUGHPUT: "images/min",
    Target.CONCURRENCY: "books",
    Target.LATENCY: "s",
    Target.ERRORS: "share",
    Target.RECOVERY: "s",
    Target.SPIKES: "spikes",
}


@dataclass(frozen=True)
class Finding:
    """A verdict on one target, with the figure it rests on and a sentence for the person."""

    target: Target
    wanted: float
    measured: float | None
    verdict: TargetVerdict
    sentence: str
    jobs_needed: int | None = None
    """How many jobs it takes to judge this, where there were too few."""

    def as_json(self) -> dict[str, Any]:
        return {
            "target": str(self.target),
            "wanted": self.wanted,
            "measured": None if self.measured is None else round(self.measured, 6),
            "unit": self.target.unit,
            "verdict": str(self.verdict),
            "sentence": self.sentence,
            **({} if self.jobs_needed is None else {"jobs_needed": self.jobs_needed}),
        }

    @property
    def wanted_text(self) -> str:
        sign = "≥ " if self.target.is_floor else "≤ " if self.wanted else ""
        return sign + quantity(self.wanted, self.target)

    @property
    def measured_text(self) -> str:
        return "-" if self.measured is None else quantity(self.measured, self.target, beside=self.wanted)


def wanted_of(target: Target, targets: Sla) -> float:
    """The target as a figure; no spike at all is wanted."""
    return 0.0 if target is Target.SPIKES else float(getattr(targets, str(target)))


def worst(findings: Sequence[Finding]) -> Finding:
    """Of several findings on one target: a miss before all, then what was measured, and of that the poorest figure."""

    def badness(finding: Finding) -> tuple[int, float]:
        order = (TargetVerdict.NOT_MEASURED, TargetVerdict.MET, TargetVerdict.MISSED).index(finding.verdict)
        if finding.measured is None:
            return order, -math.inf
        return order, -finding.measured if finding.target.is_floor else finding.measured

    return max(findings, key=badness)


def overall(findings: Iterable[Finding]) -> TargetVerdict:
    """Met only if all of it is met: what nobody has measured is no promise kept."""
    verdicts = {finding.verdict for finding in findings}
    for verdict in (TargetVerdict.MISSED, TargetVerdict.NOT_MEASURED):
        if verdict in verdicts:
            return verdict
    return TargetVerdict.MET if verdicts else TargetVerdict.NOT_MEASURED


def verdicts_in(summary: Mapping[str, Any]) -> dict[Target, TargetVerdict]:
    """What the summary of a load test says of its targets; strange words are left out."""
    found: dict[Target, TargetVerdict] = {}
    written = summary.get("targets")
    for key, word in written.items() if isinstance(written, Mapping) else ():
        with contextlib.suppress(ValueError):
            found[Target(key)] = TargetVerdict(word)
    return found


def standing(verdicts: Mapping[Target, TargetVerdict]) -> str:
    """`1 target missed (Latency p95), 2 met`, for one line; empty if nothing was judged."""
    named = {
        verdict: [target.label for target, each in verdicts.items() if each is verdict] for verdict in TargetVerdict
    }
    met, missed = named[TargetVerdict.MET], named[TargetVerdict.MISSED]
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
