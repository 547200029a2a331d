"""Where the results of a sweep stand in its grid: pages, rows and columns by its axes, drawn or on a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from comfyui_agent.batches.sweeps import GridWish
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode


class BadLayout(ValueError):
    """Axes that cannot be laid out as people wish: why, and which there are."""


class Place(NamedTuple):
    """Where a result stands, from 0."""

    page: int
    row: int
    column: int


class GridLayout:
    """Places by numbers and back, whatever the size: none is kept. An axis of one value makes no pages."""

    def __init__(self, combinations: Combinations, x: str, y: str) -> None:
        """The columns are the values of `x`, the rows those of `y`, where there is one."""
        axes = combinations.axes
        self.x, self.y = x, y
        self._axes = axes
        self._length = len(combinations)
        self._strides = [prod(len(each.values) for each in axes[number + 1 :]) for number in range(len(axes))]
        self._by_name = {axis.name: number for number, axis in enumerate(axes)}
        self._others = [number for number, axis in enumerate(axes) if axis.name not in (x, y) and len(axis.values) > 1]

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes that make the pages, the last one fastest."""
        return tuple(self._axes[number] for number in self._others)

    @property
    def pages(self) -> int:
        return prod(len(axis.values) for axis in self.others)

    @property
    def rows(self) -> list[str]:
        """What stands beside each row."""
        return self._labels(self.y) if self.y else [""]

    @property
    def columns(self) -> list[str]:
        """What stands above each column."""
        return self._labels(self.x)

    @property
    def corner(self) -> str:
        return f"{self.y} \\ {self.x}" if self.y else self.x

    def title(self, page: int) -> str:
        """What all results of a page have in common."""
        return ", ".join(axis_label(axis, value) for axis, value in zip(self.others, self.chosen(page), strict=True))

    def has(self, index: int) -> bool:
        return 0 <= index < self._length

    def place(self, index: int) -> Place:
        """Where the result of a combination stands."""
        page = 0
        for number in self._others:
            page = page * len(self._axes[number].values) + self._digit(index, number)
        row = self._digit(index, self._by_name[self.y]) if self.y else 0
        return Place(page, row, self._digit(index, self._by_name[self.x]))

    def index(self, place: Place) -> int:
        """Which combination stands at a place."""
        found = place.column * self._strides[self._by_name[self.x]]
        found += place.row * self._strides[self._by_name[self.y]] if self.y else 0
        chosen = zip(self._others, self.chosen(place.page), strict=True)
        return found + sum(digit * self._strides[number] for number, digit in chosen)

    def chosen(self, page: int) -> tuple[int, ...]:
        """For each of the other axes, which of its values a page has."""
        digits = []
        for axis in reversed(self.others):
            page, digit = divmod(page, len(axis.values))
            digits.append(digit)
        return tuple(reversed(digits))

    def page(self, chosen: Sequence[int]) -> int:
        """The page that has these values of the other axes."""
        page = 0
        for axis, digit in zip(self.others, chosen, strict=True):
            page = page * len(axis.values) + digit
        return page

    def _digit(self, index: int, number: int) -> int:
        return index // self._strides[number] % len(self._axes[number].values)

    def _labels(self, name: str) -> list[str]:
        axis = self._axes[self._by_name[name]]
        return [axis_label(axis, index) for index in range(len(axis.values))]


def axis_label(axis: Axis, index: int) -> str:
    """`cfg = 6.5`, a truth as people write it."""
    value = axis.values[index]
    return f"{axis.name} = {str(value).lower() if isinstance(value, bool) else value}"


def layout_of(batch: Batch, wish: GridWish) -> GridLayout | None:
    """By axes where there are two to lay out, or people named some; else None: a contact sheet.

    BadLayout if people name axes that cannot be laid out so.
    """
    combinations = combinations_of(batch)
    if combinations is None:
        if wish != GridWish():
            raise BadLayout(f"the batch {batch.id} has no axes: leave out --x, --y and --pages")
        return None
    said = batch.metadata.get("grid")
    known = [axis.name for axis in combinations.axes]
    chosen = dict(said) if isinstance(said, Mapping) and wish == GridWish() else {}
    chosen |= {key: value for key, value in vars(wish).items() if value}
    for key, name in chosen.items():
        if name not in known:
            raise BadLayout(f"--{key} {name!r} is no axis of {batch.id}; there are {', '.join(known)}")
    if len(set(chosen.values())) < len(chosen):
        raise BadLayout("--x, --y and --pages need different axes")
    if combinations.mode is Mode.LINEAR:
        return None
    free = [axis.name for axis in combinations.axes if len(axis.values) > 1 and axis.name not in chosen.values()]
    x = chosen.get("x") or (free.pop() if free else "")
    y = chosen.get("y") or (free.pop() if free else "")
    if not x or (not y and "x" not in chosen and "pages" not in chosen):
        return None
    return GridLayout(combinations, x, y)


def combinations_of(batch: Batch) -> Combinations | None:
    """The axes of a sweep, as they were written down; None for another batch."""
    axes = batch.metadata.get("axes")
    if not isinstance(axes, list):
        return None
    try:
        read = [Axis(str(each["name"]), tuple(each["places"]), tuple(each["values"])) for each in axes]
        return Combinations(read, Mode(batch.metadata.get("mode", Mode.MATRIX.value)))
    except (BadAxes, KeyError, TypeError, ValueError):
        return None
