"""Confidence intervals for the difference of two figures.

Student's t takes into account that a run has few independent stretches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from comfyui_agent.lab.load.resampling import Estimate

CONFIDENT, SURE = 0.95, 0.99


@dataclass(frozen=True)
class Share:
    """`hits` of `total`."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        return self.hits / self.total

    def __str__(self) -> str:
        return f"{self.hits} of {self.total}"


def reach_of(a: Estimate, b: Estimate, confidence: float) -> float:
    """Half the width of the interval for the logarithm of B / A."""
    spread, freedom = _together(a, b)
    return spread * _student(confidence, freedom)


def difference_of(a: Share, b: Share, confidence: float) -> tuple[float, float]:
    """Newcombe's interval for B - A."""
    (low_a, high_a), (low_b, high_b) = _wilson(a, confidence), _wilson(b, confidence)
    difference = b.value - a.value
    low = difference - math.hypot(b.value - low_b, high_a - a.value)
    return low, difference + math.hypot(high_b - b.value, a.value - low_a)


def _together(a: Estimate, b: Estimate) -> tuple[float, float]:
    """The scatter of the difference, and its degrees of freedom after Welch."""
    spread = math.hypot(a.scatter, b.scatter)
    if spread in (0.0, math.inf):
        return spread, 1.0
    parts = ((each.scatter / spread) ** 4 / max(1.0, each.pieces - 1) for each in (a, b))
    return spread, 1 / sum(parts)


def _student(confidence: float, freedom: float) -> float:
    """The quantile of Student's t for a two-sided interval, by its expansion around the normal one."""
    z, n = _normal(confidence), max(1.0, freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / n + second / n**2 + third / n**3


def _wilson(share: Share, confidence: float) -> tuple[float, float]:
    z = _normal(confidence)
    value, weight = share.value, z * z / share.total
    middle = (value + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * math.sqrt(value * (1 - value) / share.total + weight / (4 * share.total))
    return (0.0 if share.hits == 0 else middle - reach), (1.0 if share.hits == share.total else middle + reach)


def _normal(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
