"""Which values go together: the product of all axes, or all axes in step. Runs on Python 3.9."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

MOST = 1_000_000
COUNTABLE = 10**15
MOST_LISTED = 8


class Mode(str, Enum):
    MATRIX = "matrix"
    """Each value with each: the last axis goes fastest."""
    LINEAR = "linear"
    """First with first, second with second; an axis of one value stays."""


class BadAxes(ValueError):
    """Axes that make no combinations: which, why, and what to do, in one line."""


@dataclass(frozen=True)
class Axis:
    """Values that one after the other go to the same places."""

    name: str
    places: tuple[str, ...]
    values: tuple[Any, ...]


class Combinations:
    """All combinations of some axes, by number. None is kept: a million take no memory. BadAxes if there are none."""

    def __init__(self, axes: Sequence[Axis], mode: Mode) -> None:
        self.axes = tuple(axes)
        self.mode = Mode(mode)
        _check_each(self.axes)
        if self.mode is Mode.LINEAR:
            _check_in_step(self.axes)
        self._length = count([(axis.name, len(axis.values)) for axis in self.axes], self.mode)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return map(self.__getitem__, range(self._length))

    def __getitem__(self, index: int) -> tuple[int, ...]:
        """For each axis, which of its values is in this combination. Counts from the end if negative."""
        position = range(self._length)[index]
        if self.mode is Mode.LINEAR:
            return tuple(position if len(axis.values) > 1 else 0 for axis in self.axes)
        digits = []
        for axis in reversed(self.axes):
            position, digit = divmod(position, len(axis.values))
            digits.append(digit)
        return tuple(reversed(digits))

    def values_at(self, index: int) -> dict[str, Any]:
        """Name of the axis → its value."""
        chosen = self[index]
        return {axis.name: axis.values[chosen[number]] for number, axis in enumerate(self.axes)}

    def bound_at(self, index: int) -> dict[str, Any]:
        """Place → the value that goes there."""
        values = self.values_at(index)
        return {place: values[axis.name] for axis in self.axes for place in axis.places}


def count(lengths: Sequence[tuple[str, int]], mode: Mode, most: int = MOST) -> int:
    """How many combinations axes of these names and lengths make. BadAxes if there are more than `most`."""
    numbers = [length for _, length in lengths]
    total = math.prod(numbers) if mode is Mode.MATRIX else max(numbers)
    if total > most:
        shown = f"{total:,}" if total < COUNTABLE else "far too many"
        raise BadAxes(f"{_counted(lengths)} make {shown} combinations; {most:,} is the most: give fewer values")
    return total


def check_apart(axes: Iterable[tuple[str, Sequence[str]]]) -> None:
    """BadAxes if two axes, given by name and places, have the same name or go to the same place."""
    owners: dict[str, str] = {}
    names: set[str] = set()
    for name, places in axes:
        if name in names:
            raise BadAxes(f"{name} is given twice: write all its values in one list")
        names.add(name)
        for place in places:
            if owners.setdefault(place, name) != name:
                raise BadAxes(f"{owners[place]} and {name} both go to {place}: leave one of them out")


def cartesian(lists: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Each value of each list with each of the others, the last list fastest. BadAxes if that cannot be."""
    return _of_lists(lists, Mode.MATRIX)


def linear_zip(lists: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """All lists in step; a list of one value stays. BadAxes if that cannot be."""
    return _of_lists(lists, Mode.LINEAR)


def _of_lists(lists: Sequence[Sequence[Any]], mode: Mode) -> list[tuple[Any, ...]]:
    axes = [Axis(f"list {number}", (), tuple(values)) for number, values in enumerate(lists, start=1)]
    combinations = Combinations(axes, mode)
    return [tuple(combinations.values_at(index).values()) for index in range(len(combinations))]


def _check_each(axes: Sequence[Axis]) -> None:
    if not axes:
        raise BadAxes("there is nothing to combine: give at least one axis, such as 3.seed=1..4")
    for axis in axes:
        if not axis.values:
            raise BadAxes(f"{axis.name} has no values: give at least one")
    check_apart((axis.name, axis.places) for axis in axes)


def _check_in_step(axes: Sequence[Axis]) -> None:
    first: Axis | None = None
    for axis in axes:
        if len(axis.values) == 1:
            continue
        if first is None:
            first = axis
        elif len(axis.values) != len(first.values):
            raise BadAxes(
                f"{first.name} has {len(first.values):,} values and {axis.name} {len(axis.values):,}: in linear mode "
                f"give both as many, or one of them a single value; or use mode matrix"
            )


def _counted(lengths: Sequence[tuple[str, int]]) -> str:
    words = [f"{name} ({length:,})" for name, length in lengths[:MOST_LISTED]]
    more = f" and {len(lengths) - MOST_LISTED} more" if len(lengths) > MOST_LISTED else ""
    return ", ".join(words) + more
