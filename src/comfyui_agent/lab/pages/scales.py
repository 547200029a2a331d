"""Scales: from a quantity to a place on the paper, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.quantities import minus

STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Quantities from `low` to `high` lie between the places `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    decimals: int = 0

    def __call__(self, value: float) -> float:
        """Where a quantity lies; one beyond the ends lies at the end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def text(self, tick: float) -> str:
        """A tick's number, in as many digits as its neighbours."""
        return minus(f"{tick:,.{self.decimals}f}")


def fitted(
    low: float, high: float, start: float, end: float, *, most: int = 6, is_tight: bool = False, is_whole: bool = False
) -> Scale:
    """A scale with at most so many ticks that holds both values. A tight one ends at them, others at a tick."""
    low, high = _apart(min(low, high), max(low, high))
    step = _step((high - low) / max(1, most - 1), is_whole)
    if is_tight:
        bottom, top = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    else:
        bottom, top = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple(round(number * step, decimals) for number in range(bottom, top + 1))
    if not is_tight:
        low, high = min(low, ticks[0]), max(high, ticks[-1])
    return Scale(low, high, start, end, ticks, decimals)


def at(values: Sequence[float], low: float, high: float, start: float, end: float) -> Scale:
    """A scale whose ticks are given, such as the levels that were measured."""
    low, high = _apart(low, high)
    decimals = 0 if all(value == round(value) for value in values) else 1
    return Scale(low, high, start, end, tuple(value for value in values if low <= value <= high), decimals)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Ends that differ enough to divide by their distance."""
    if high - low > 1e-9 * max(1e-6, abs(low), abs(high)):
        return low, high
    room = abs(high) / 2 or 0.5
    return (low, high + 2 * room) if low == 0 else (low - room, high + room)


def _step(least: float, is_whole: bool) -> float:
    size: float = 10.0 ** math.floor(math.log10(least))
    step = next(size * factor for factor in STEPS if size * factor >= least * (1 - 1e-9))
    return max(1.0, step) if is_whole else step
