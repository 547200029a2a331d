"""The grid of a batch as pictures: by its axes, a picture for each page, or as a contact sheet. Runs on Python 3.9.

Pillow is imported when a grid is made, so that the pack can be imported without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from comfyui_agent.domain.combinations import Combinations, Mode
from comfyui_agent.domain.grid_layout import CellPlace, GridLayout, axis_label, layout_by_axes, sheet_place
from comfyui_agent.domain.suggestions import suggest
from comfyui_agent.domain.values import shortened

if TYPE_CHECKING:
    from PIL import Image

    from comfyui_agent.pictures.grid import Box, Cell, Grid, Layout, Page

MOST_PAGES = 50
LEAST_CELL = 16


class NoGrid(ValueError):
    """A grid that cannot be made: why, and what to do, in one line."""


@dataclass(frozen=True)
class Member:
    """What became of a combination: its picture if it is `done`; else `failed`, `cancelled` or `pending`, and why."""

    file: Path | None = None
    state: str = "pending"
    reason: str = ""


@dataclass(frozen=True)
class GridOrder:
    """What a grid shall show. `columns` and `rows` are names of axes; where they are empty, the last two are taken."""

    combinations: Combinations
    members: Mapping[int, Member]
    """By their index; one that is missing is shown as pending."""
    title: str = ""
    subtitle: str = ""
    columns: str = ""
    rows: str = ""
    cell_pixels: int = 0
    """The longest side of a cell; 0 is as large as the pictures are, and the grid can be."""


@dataclass(frozen=True)
class BatchGrid:
    """A grid that was laid out. Each picture is drawn when it is asked for: iterate, so that one is in memory."""

    warnings: tuple[str, ...]
    """What was wished for and cannot be, in one line each."""
    _layout: Layout = field(repr=False)
    _places: Mapping[int, CellPlace] = field(repr=False)

    def __len__(self) -> int:
        """How many pictures there are, at least one."""
        return len(self._layout.pages)

    def __iter__(self) -> Iterator[Image.Image]:
        return map(self.picture, range(len(self)))

    def picture(self, page: int) -> Image.Image:
        """The picture of a page, from 0. A file that is gone or broken by now leaves a word in its cell."""
        from comfyui_agent.pictures.grid_drawing import draw

        return draw(self._layout, page, with_thumbnails=False).picture

    def boxes(self, page: int) -> dict[int, Box]:
        """Where the members of a page stand in its picture, by index: left, top, right and bottom."""
        return {index: self._layout.box(*place) for index, place in self._places.items() if place.page == page}


def draw_grid(order: GridOrder) -> BatchGrid:
    """The grid of a batch: by axes if it is a matrix of two or more that vary, else a contact sheet.

    Names of axes that are not there are left out with a warning. If there would be more than MOST_PAGES, or a page
    would be too large, it is one contact sheet, also with a warning; NoGrid if that is too large as well.
    """
    warnings: list[str] = []
    combinations = order.combinations
    by_axes = layout_by_axes(combinations, *_wished(order, warnings))
    if by_axes is not None:
        if by_axes.pages <= MOST_PAGES:
            places = {index: by_axes.place(index) for index in range(len(combinations))}
            laid_out = _laid_out(_grid(order, _pages(order, places, by_axes)))
            if laid_out is not None:
                return BatchGrid(tuple(warnings), laid_out, places)
            warnings.append("the pages of the grid are too large for pictures: it is a contact sheet instead")
        else:
            warnings.append(
                f"the grid would have {by_axes.pages:,} pages, and {MOST_PAGES} is the most: it is a contact sheet "
                f"instead; give fewer parameters, or make several batches"
            )
    places = {index: sheet_place(index, len(combinations)) for index in range(len(combinations))}
    laid_out = _laid_out(_grid(order, _pages(order, places, None), is_sheet=True))
    if laid_out is None:
        raise NoGrid(f"{len(combinations):,} results do not fit into one picture: make several batches")
    return BatchGrid(tuple(warnings), laid_out, places)


def _wished(order: GridOrder, warnings: list[str]) -> tuple[str, str]:
    """The axes to go across and down; empty where none was named that can go there."""
    known = [axis.name for axis in order.combinations.axes]
    found = {"columns": order.columns.strip(), "rows": order.rows.strip()}
    for key, name in found.items():
        if name and name not in known:
            warnings.append(f"{key}: {shortened(name)} is no parameter of this batch; {suggest(name, known)}")
            found[key] = ""
    columns, rows = found["columns"], found["rows"]
    if (columns or rows) and order.combinations.mode is Mode.LINEAR:
        warnings.append("columns and rows are for mode matrix: a batch in mode linear is a contact sheet")
    if rows and rows == columns:
        warnings.append(f"rows: {shortened(rows)} goes across already; leave it out, or name another")
        rows = ""
    return columns, rows


def _grid(order: GridOrder, pages: tuple[Page, ...], *, is_sheet: bool = False) -> Grid:
    from comfyui_agent.pictures.grid import Grid

    size = max(LEAST_CELL, order.cell_pixels) if order.cell_pixels > 0 else None
    return Grid(pages, order.title, order.subtitle, is_sheet=is_sheet, cell_pixels=size)


def _laid_out(grid: Grid) -> Layout | None:
    """None if it is larger than pictures may be."""
    from comfyui_agent.pictures.grid import lay_out

    try:
        return lay_out(grid)
    except ValueError:
        return None


def _pages(order: GridOrder, places: Mapping[int, CellPlace], layout: GridLayout | None) -> tuple[Page, ...]:
    from comfyui_agent.pictures.grid import Page

    cells: list[list[Cell]] = [[] for _ in range(layout.pages if layout else 1)]
    for index, place in places.items():
        label = "" if layout else _label(order.combinations, index)
        cells[place.page].append(_cell(order.members.get(index, Member()), place, label))
    if layout is None:
        across, down = (1 + max(place[at] for place in places.values()) for at in (2, 1))
        return (Page(("",) * down, ("",) * across, tuple(cells[0])),)
    rows, columns = tuple(layout.rows), tuple(layout.columns)
    return tuple(
        Page(rows, columns, tuple(listed), layout.title(page), layout.corner) for page, listed in enumerate(cells)
    )


def _cell(member: Member, place: CellPlace, label: str) -> Cell:
    from comfyui_agent.pictures.grid import Cell

    file = member.file if member.state == "done" else None
    return Cell(place.row, place.column, file, label=label, state=member.state, reason=member.reason)


def _label(combinations: Combinations, index: int) -> str:
    """What tells a member from the others: `cfg = 6.5, steps = 20`."""
    chosen = combinations[index]
    axes = list(enumerate(combinations.axes))
    telling = [(number, axis) for number, axis in axes if len(axis.values) > 1] or axes
    return ", ".join(axis_label(axis, chosen[number]) for number, axis in telling)
