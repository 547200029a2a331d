"""Where combinations stand in a grid: by axes, or in order on a contact sheet. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod, sqrt
from pathlib import Path
from typing import NamedTuple

from comfyui_agent.domain.combinations import Axis, Combinations, Mode, digits_of, number_of
from comfyui_agent.domain.value_types import text_of


def picture_paths(first: Path, pages: int) -> list[Path]:
    """The file of each page of a grid: grid.png, grid_2.png, …"""
    return [first, *(first.with_name(f"{first.stem}_{number}{first.suffix}") for number in range(2, pages + 1))]


class CellPlace(NamedTuple):
    """Where a result stands, counted from 0."""

    page: int
    row: int
    column: int


class GridLayout:
    """Pages, rows and columns by axes: from the number of a combination to its place and back."""

    def __init__(self, combinations: Combinations, x: str, y: str) -> None:
        """The columns are the values of the axis `x`, the rows those of `y`. An empty `y` makes one row."""
        self.x, self.y = x, y
        self._axes = combinations.axes
        self._length = len(combinations)
        self._by_name = {axis.name: number for number, axis in enumerate(self._axes)}
        self.others = tuple(axis for axis in self._axes if axis.name not in (x, y) and len(axis.values) > 1)
        """The axes with several values that make the pages. The last one goes fastest."""

    @property
    def pages(self) -> int:
        return prod(len(axis.values) for axis in self.others)

    @property
    def rows(self) -> list[str]:
        return self._labels(self.y) if self.y else [""]

    @property
    def columns(self) -> list[str]:
        return self._labels(self.x)

    @property
    def corner(self) -> str:
        return f"{self.y} \\ {self.x}" if self.y else self.x

    def title(self, page: int) -> str:
        """The values that all results of a page share."""
        chosen = self.chosen(page)
        return ", ".join(axis_label(axis, chosen[number]) for number, axis in enumerate(self.others))

    def has(self, index: int) -> bool:
        return 0 <= index < self._length

    def place(self, index: int) -> CellPlace:
        digits = digits_of(index, self._axes)
        page = self.page([digits[self._by_name[axis.name]] for axis in self.others])
        return CellPlace(page, digits[self._by_name[self.y]] if self.y else 0, digits[self._by_name[self.x]])

    def index(self, place: CellPlace) -> int:
        """The number of the combination at a place."""
        chosen = self.chosen(place.page)
        shown = {axis.name: chosen[at] for at, axis in enumerate(self.others)}
        shown.update({self.x: place.column, self.y: place.row})
        return number_of([shown.get(axis.name, 0) for axis in self._axes], self._axes)

    def chosen(self, page: int) -> tuple[int, ...]:
        """For each of the other axes, the index of its value on a page."""
        return digits_of(page, self.others)

    def page(self, chosen: Sequence[int]) -> int:
        """The page with these values of the other axes."""
        return number_of(chosen, self.others)

    def _labels(self, name: str) -> list[str]:
        axis = self._axes[self._by_name[name]]
        return [axis_label(axis, index) for index in range(len(axis.values))]


def axis_label(axis: Axis, index: int) -> str:
    """`cfg = 6.5`"""
    return f"{axis.name} = {text_of(axis.values[index])}"


def layout_by_axes(combinations: Combinations, x: str = "", y: str = "", pages: str = "") -> GridLayout | None:
    """A layout by axes if there are two to lay out or some were named. None means a contact sheet.

    The names are different axes. An empty name is chosen: the last axis with several values goes across, the one
    before it down.
    """
    if combinations.mode is Mode.LINEAR:
        return None
    free = [axis.name for axis in combinations.axes if len(axis.values) > 1 and axis.name not in (x, y, pages)]
    across = x or (free.pop() if free else "")
    down = y or (free.pop() if free else "")
    if not across or not (down or x or pages):
        return None
    return GridLayout(combinations, across, down)


def sheet_place(number: int, count: int) -> CellPlace:
    """The place of a result on a contact sheet of `count` results, about as wide as high."""
    row, column = divmod(number, ceil(sqrt(count)))
    return CellPlace(0, row, column)
