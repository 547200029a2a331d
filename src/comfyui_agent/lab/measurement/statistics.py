"""Percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share (0 to 1) of the values lies, linear between neighbours, as numpy has it.

    ValueError if there are no values, or if it is no share.
    """
    if not values:
        raise ValueError("there is no percentile of nothing")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float | None:
    """None without values."""
    return percentile(values, 0.5) if values else None
