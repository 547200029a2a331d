"""The figures of pages as data, drawn by `templates/figure.html`. Places are percent of a figure's width and height."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from comfyui_agent.lab.quantities import minus

Point = tuple[float, float]

LOOKS = ("dots", "squares", "triangles", "crosses")
"""Marks of series. They differ in shape, so that nobody needs the colour."""
MOST_DRAWN = 1_500
FARTHEST_TARGET = 4.0
"""A target farther off than so many times the largest value is named at the edge: a line would flatten the rest."""
DIGIT = 2.6
"""The width of a digit on a phone, in percent of a figure."""


@dataclass(frozen=True)
class Scale:
    """Quantities from `low` to `high` as places on an axis. Ticks are written in `unit`."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int = 0
    unit: float = 1.0
    is_upright: bool = False

    def __call__(self, value: float) -> float:
        """Where a quantity lies. One beyond an end lies at the end."""
        inside = min(max(value, self.low), self.high)
        place = 100 * (inside - self.low) / (self.high - self.low)
        return round(100 - place if self.is_upright else place, 2)

    def text(self, tick: float) -> str:
        """A tick's number, with as many digits as its neighbours."""
        return minus(f"{tick / self.unit:,.{self.decimals}f}")


def fitted(low: float, high: float, unit: float = 1.0, *, is_tight: bool = False) -> Scale:
    """A scale with a few round ticks that holds both values. A tight one ends at them, others at a tick."""
    low, high = _apart(low / unit, high / unit)
    least = (high - low) / (7 if is_tight else 5)
    size: float = 10.0 ** math.floor(math.log10(least))
    step = next(size * factor for factor in (1.0, 2.0, 5.0, 10.0) if size * factor >= least * (1 - 1e-9))
    if is_tight:
        bottom, top = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    else:
        bottom, top = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [round(number * step, decimals) for number in range(bottom, top + 1)]
    if not is_tight:
        low, high = min(low, ticks[0]), max(high, ticks[-1])
    return Scale(low * unit, high * unit, tuple(tick * unit for tick in ticks), decimals, unit)


def _scale_at(ticks: Sequence[float], low: float, high: float) -> Scale:
    """A scale whose ticks are given. Those whose numbers would touch the one before are left out."""
    decimals = 0 if all(tick == round(tick) for tick in ticks) else 1
    scale = Scale(*_apart(low, high), (), decimals)
    kept, free = [], -math.inf
    for tick in ticks:
        half = len(scale.text(tick)) * DIGIT / 2
        if scale(tick) - half > free:
            kept.append(tick)
            free = scale(tick) + half + 1
    return replace(scale, ticks=tuple(kept))


def _apart(low: float, high: float) -> tuple[float, float]:
    """Ends that differ enough to divide by their distance."""
    if high - low > 1e-9 * max(1e-6, abs(low), abs(high)):
        return low, high
    room = abs(high) / 2 or 0.5
    return (low, high + 2 * room) if low == 0 else (low - room, high + room)


@dataclass(frozen=True)
class Target:
    value: float
    text: str
    is_upright: bool = False


def _reach(largest: float, targets: Iterable[Target]) -> float:
    """How far an axis goes: to the largest value, and to targets that are not too far off."""
    values = (target.value for target in targets)
    return max([largest, *(value for value in values if largest <= 0 or value <= largest * FARTHEST_TARGET)])


@dataclass(frozen=True)
class Axis:
    """What an axis shows. `unit` is how much of the values its label counts as one; ticks may be given."""

    label: str
    low: float | None = 0.0
    high: float | None = None
    unit: float = 1.0
    ticks: Sequence[float] = ()


@dataclass(frozen=True)
class Series:
    """Points that belong together. A line joins them; marks show each."""

    name: str
    points: Sequence[Point]
    look: str = "dots"
    has_line: bool = True
    has_marks: bool = True


@dataclass(frozen=True)
class Note:
    """The number at a point that matters."""

    point: Point
    text: str
    is_ringed: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the horizontal axis that has a name, such as a level or a run."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Plot:
    """Series over a horizontal axis. The title states the finding."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    targets: Sequence[Target] = ()
    notes: Sequence[Note] = ()
    bands: Sequence[Band] = ()

    @cached_property
    def x_scale(self) -> Scale:
        low, high = self._span(self.x, 0)
        return _scale_at(self.x.ticks, low, high) if self.x.ticks else fitted(low, high, self.x.unit, is_tight=True)

    @cached_property
    def y_scale(self) -> Scale:
        return replace(fitted(*self._span(self.y, 1), self.y.unit), is_upright=True)

    @property
    def count(self) -> int:
        return sum(len(one.points) for one in self.series)

    @property
    def drawn(self) -> list[tuple[Series, list[Point]]]:
        """Each series that has points, with the places of those that are drawn."""
        found = []
        for one in self.series:
            points = thinned(one.points, max(60, MOST_DRAWN * len(one.points) // self.count))
            if points:
                found.append((one, [(self.x_scale(across), self.y_scale(up)) for across, up in points]))
        return found

    def _span(self, axis: Axis, side: int) -> tuple[float, float]:
        values = [point[side] for one in self.series for point in one.points]
        low = min(values) if axis.low is None else min(axis.low, *values)
        high = max(values) if axis.high is None else max(axis.high, *values)
        return low, _reach(high, [target for target in self.targets if target.is_upright == (side == 0)])


@dataclass(frozen=True)
class Bar:
    """A filled stretch of a lane. Bars in another row lie below."""

    fill: str
    start: float
    end: float
    row: int = 0


@dataclass(frozen=True)
class Interval:
    """A value marked in a lane, and the range in which it may lie."""

    value: float
    low: float
    high: float
    look: str
    is_sure: bool


@dataclass(frozen=True)
class Lane:
    """A name, what is drawn beside it, and behind that a text for each row."""

    name: str
    texts: Sequence[str]
    bars: Sequence[Bar] = ()
    interval: Interval | None = None


@dataclass(frozen=True)
class Lanes:
    """Lanes below each other along one horizontal axis. `keys` names what fills and looks mean."""

    title: str
    axis: str
    lanes: Sequence[Lane]
    keys: Mapping[str, str] = field(default_factory=dict)
    target: Target | None = None

    @cached_property
    def scale(self) -> Scale:
        ends = [0.0]
        for lane in self.lanes:
            ends += [end for bar in lane.bars for end in (bar.start, bar.end)]
            if lane.interval is not None:
                ends.append(lane.interval.value)
                ends += [lane.interval.low, lane.interval.high] if lane.interval.look != "crosses" else []
        return fitted(min(ends), _reach(max(ends), [self.target] if self.target else []), is_tight=True)


def stacked(fills: Iterable[str], values: Iterable[float | None]) -> list[Bar]:
    """Bars that follow each other; nothing where a value is unknown."""
    bars: list[Bar] = []
    behind = 0.0
    for fill, value in zip(fills, values, strict=True):
        if value is not None and value > 0:
            bars.append(Bar(fill, behind, behind + value))
            behind += value
    return bars


def time_axis(label: str, series: Iterable[Series]) -> Axis:
    """An axis for points at seconds, in the unit that gives round numbers."""
    longest = max(at for one in series for at, _ in one.points)
    unit, name = (1, "s") if longest <= 300 else (60, "min") if longest <= 4 * 3600 else (3600, "h")
    return Axis(f"{label} ({name})", unit=unit)


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most so many points, by x: the lowest and highest of each stretch, and the first and the last of all."""
    ordered = sorted(points, key=lambda point: point[0])
    if len(ordered) <= most:
        return ordered
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(ordered) - 1}
    for stretch in range(stretches):
        numbers = range(stretch * len(ordered) // stretches, (stretch + 1) * len(ordered) // stretches)
        kept.add(min(numbers, key=lambda number: ordered[number][1]))
        kept.add(max(numbers, key=lambda number: ordered[number][1]))
    return [ordered[number] for number in sorted(kept)]
