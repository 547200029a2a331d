"""Scales: from a quantity to a place on the paper, with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.shapes import LETTER, Label, Path, Point, Shape, place
from comfyui_agent.lab.quantities import minus

STEPS = (1.0, 2.0, 5.0, 10.0)
FARTHEST_TARGET = 4.0
"""A target farther off than so many times the largest value is named at the edge: a line would flatten the rest."""


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
        """Where a quantity lies. One beyond an end lies at the end."""
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def text(self, tick: float) -> str:
        """A tick's number, with as many digits as its neighbours."""
        return minus(f"{tick:,.{self.decimals}f}")

    def tick_shapes(self, bottom: float) -> list[Shape]:
        """The ticks of a horizontal axis. Numbers that would touch the one before are left out."""
        shapes: list[Shape] = []
        free = -math.inf
        for tick in self.ticks:
            spot, half = self(tick), len(self.text(tick)) * LETTER / 2
            shapes.append(Path("base", f"M{place(spot)} {place(bottom)}v5"))
            if spot - half > free:
                shapes.append(Label("tick", self.text(tick), spot, bottom + 19, "middle"))
                free = spot + half + 4
        return shapes


def fitted(low: float, high: float, start: float, end: float, *, most: int = 6, is_tight: bool = False) -> Scale:
    """A scale with at most so many ticks that holds both values. A tight one ends at them, others at a tick."""
    low, high = _apart(min(low, high), max(low, high))
    step = _step((high - low) / max(1, most - 1))
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


def reach(largest: float, targets: Iterable[float]) -> float:
    """How far an axis goes: to the largest value, and to a target that is not too far off."""
    return max([largest, *(target for target in targets if largest <= 0 or target <= largest * FARTHEST_TARGET)])


@dataclass(frozen=True)
class TimeUnit:
    """The unit of an axis of time."""

    size: float
    name: str

    def points(self, points: Iterable[Point]) -> list[Point]:
        """Points at seconds, at units of the axis."""
        return [(seconds / self.size, value) for seconds, value in points]


def time_unit(longest: float) -> TimeUnit:
    """Seconds, minutes or hours: the unit that gives round numbers for so many seconds."""
    if longest <= 300:
        return TimeUnit(1, "s")
    return TimeUnit(60, "min") if longest <= 4 * 3600 else TimeUnit(3600, "h")


def _apart(low: float, high: float) -> tuple[float, float]:
    """Ends that differ enough to divide by their distance."""
    if high - low > 1e-9 * max(1e-6, abs(low), abs(high)):
        return low, high
    room = abs(high) / 2 or 0.5
    return (low, high + 2 * room) if low == 0 else (low - room, high + room)


def _step(least: float) -> float:
    size: float = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in STEPS if size * factor >= least * (1 - 1e-9))
