"""Combinations of axis values: the product of all axes, or all axes in step. Runs on Python 3.9."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.texts import TextEnum, listed

MOST = 1_000_000
COUNTABLE = 10**15
MOST_LISTED = 8


class Mode(TextEnum):
    MATRIX = "matrix"
    """Each value with each. The last axis goes fastest."""
    LINEAR = "linear"
    """First with first, second with second. An axis of one value stays."""


class BadAxes(ValueError):
    """Axes that make no combinations. The message is one line: which, why, and what to do."""


@dataclass(frozen=True)
class Axis:
    """One input of a sweep: its values, and the places where each of them goes."""

    name: str
    places: tuple[str, ...]
    values: tuple[Any, ...]


class Combinations:
    """All combinations of some axes by number, computed on demand. BadAxes if there are none."""

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
        """For each axis, the index of its value in this combination. A negative number counts from the end."""
        position = range(self._length)[index]
        if self.mode is Mode.LINEAR:
            return tuple(position if len(axis.values) > 1 else 0 for axis in self.axes)
        return digits_of(position, self.axes)

    def values_at(self, index: int) -> dict[str, Any]:
        """The value of each axis, by the name of the axis."""
        chosen = self[index]
        return {axis.name: axis.values[chosen[number]] for number, axis in enumerate(self.axes)}


def digits_of(number: int, axes: Sequence[Axis]) -> tuple[int, ...]:
    """For each axis, the index of its value in the combination of a number. The last axis goes fastest."""
    digits = []
    for axis in reversed(axes):
        number, digit = divmod(number, len(axis.values))
        digits.append(digit)
    return tuple(reversed(digits))


def number_of(digits: Sequence[int], axes: Sequence[Axis]) -> int:
    """The number of the combination of these indexes."""
    number = 0
    for at, axis in enumerate(axes):
        number = number * len(axis.values) + digits[at]
    return number


def count(lengths: Sequence[tuple[str, int]], mode: Mode, most: int = MOST) -> int:
    """The number of combinations of axes with these names and lengths. BadAxes if there are more than `most`."""
    numbers = [length for _, length in lengths]
    total = math.prod(numbers) if mode is Mode.MATRIX else max(numbers)
    if total > most:
        shown = f"{total:,}" if total < COUNTABLE else "far too many"
        axes = listed([f"{name} ({length:,})" for name, length in lengths], MOST_LISTED)
        raise BadAxes(f"{axes} make {shown} combinations; {most:,} is the most: give fewer values")
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


def combine_lists(lists: Sequence[Sequence[Any]], mode: Mode) -> list[tuple[Any, ...]]:
    """All combinations of the values of some lists. BadAxes if there are none."""
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
    first, *others = [axis for axis in axes if len(axis.values) > 1] or axes
    for axis in others:
        if len(axis.values) != len(first.values):
            raise BadAxes(
                f"{first.name} has {len(first.values):,} values and {axis.name} {len(axis.values):,}: in linear mode "
                f"give both as many, or one of them a single value; or use mode matrix"
            )
