"""The layout of a comparison grid. Runs on Python 3.9, with Pillow from 10.1 on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.domain.grid_layout import GridLayout
from comfyui_agent.pictures.grid_sources import Size, Source, look_at
from comfyui_agent.pictures.labels import MOST_LINES, Label, fit, line_height, one_line

MOST_PIXELS = 80_000_000
LONGEST_SIDE = 60_000
SMALLEST_CELL = 8
EMPTY_CELL = 320
TINY = 64
"""Smaller pictures are enlarged, up to twice this. Cells are no smaller unless the grid must be."""
Box = tuple[int, int, int, int]
Place = tuple[int, int, int]
"""Page, row and column of a cell, counted from 0."""


@dataclass(frozen=True)
class Cell:
    """One job of the batch: its place, its file if it has one, and what is said about it."""

    row: int
    column: int
    file: Path | None = None
    href: str = ""
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    state: str = "pending"
    reason: str = ""


@dataclass(frozen=True)
class Page:
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    title: str = ""
    corner: str = ""


@dataclass(frozen=True)
class Grid:
    pages: tuple[Page, ...]
    title: str = ""
    subtitle: str = ""
    about: str = ""
    """What all pictures share, such as the prompt and the model."""
    is_sheet: bool = False
    """A contact sheet: no headings, a label below each cell."""
    cell_pixels: int | None = None


def pages_of(layout: GridLayout | None, cells: Mapping[int, Sequence[Cell]]) -> tuple[Page, ...]:
    """Cells by page, with the headings of a layout. Without one they are a contact sheet."""
    if layout is not None:
        rows, columns = tuple(layout.rows), tuple(layout.columns)
        return tuple(
            Page(rows, columns, tuple(cells[page]), layout.title(page), layout.corner) for page in sorted(cells)
        )
    down, across = 1 + max(cell.row for cell in cells[0]), 1 + max(cell.column for cell in cells[0])
    return (Page(("",) * down, ("",) * across, tuple(cells[0])),)


def size_within(size: Size, cell: Size) -> Size:
    """The size of a picture in a cell: its own or less. Tiny pictures are enlarged by a whole number."""
    share = min(cell[0] / size[0], cell[1] / size[1])
    if share < 1:
        return max(1, round(size[0] * share)), max(1, round(size[1] * share))
    longest = max(size)
    times = max(1, int(min(share, 2 * TINY / longest))) if longest < TINY else 1
    return size[0] * times, size[1] * times


@dataclass(frozen=True)
class PageLayout:
    """Where the parts of a page go. `first` is the top left corner of the first cell."""

    size: Size
    first: tuple[int, int]
    step: tuple[int, int]
    titles: tuple[Label, ...]
    rows: tuple[Label, ...] = ()
    columns: tuple[Label, ...] = ()
    corner: Label | None = None
    below: Mapping[tuple[int, int], Label] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    grid: Grid
    cell: Size
    text: int
    """The height of letters in pixels. The title is larger, reasons are smaller."""
    pages: tuple[PageLayout, ...]
    sources: Mapping[Place, Source]

    def box(self, page: int, row: int, column: int) -> Box:
        """Left, top, right and bottom of a cell in the picture of its page."""
        layout = self.pages[page]
        left = layout.first[0] + column * layout.step[0]
        top = layout.first[1] + row * layout.step[1]
        return left, top, left + self.cell[0], top + self.cell[1]


def lay_out(grid: Grid) -> Layout:
    """The layout of a grid, with cells as large as wanted and possible. ValueError if there are too many cells."""
    sources = {
        (number, cell.row, cell.column): look_at(cell.file)
        for number, page in enumerate(grid.pages)
        for cell in page.cells
    }
    sizes = [source.size for source in sources.values() if source.is_picture]
    largest = (max(width for width, _ in sizes), max(height for _, height in sizes)) if sizes else (1, 1)
    wanted = _scaled(largest, grid.cell_pixels or (max(TINY, *largest) if sizes else EMPTY_CELL))
    longest = max(wanted)
    while longest >= SMALLEST_CELL:
        cell = _scaled(wanted, longest)
        text = max(11, round(math.sqrt(cell[0] * cell[1]) / 20))
        pages = tuple(_arranged(grid, page, cell, text) for page in grid.pages)
        excess = max(_excess(page.size) for page in pages)
        if excess <= 1:
            return Layout(grid, cell, text, pages, sources)
        longest = min(longest - 1, int(longest / excess))
    most = max(len(page.rows) * len(page.columns) for page in grid.pages)
    raise ValueError(f"{most:,} cells do not fit into one picture: put one of the axes on pages, or make two batches")


def _excess(size: Size) -> float:
    return max(max(size) / LONGEST_SIDE, math.sqrt(size[0] * size[1] / MOST_PIXELS))


def _scaled(size: Size, longest: int) -> Size:
    share = longest / max(size)
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def _arranged(grid: Grid, page: Page, cell: Size, text: int) -> PageLayout:
    """The layout of a page: titles on top, headings around the cells or labels below them."""
    gap, line = max(4, text // 2), line_height(text)
    rows: tuple[Label, ...] = ()
    columns: tuple[Label, ...] = ()
    corner: Label | None = None
    below: dict[tuple[int, int], Label] = {}
    if grid.is_sheet:
        lines = max(1, min(MOST_LINES, cell[1] // (2 * line)))
        below = {(each.row, each.column): fit(each.label, text, cell[0], lines) for each in page.cells}
    else:
        widest = max(round(cell[0] * 0.6), 8 * text)
        rows = tuple(fit(row, text, widest, max(1, min(MOST_LINES, cell[1] // line))) for row in page.rows)
        columns = tuple(fit(column, text, cell[0]) for column in page.columns)
        corner = fit(page.corner, text, widest)
    left = _room((label.width for label in (*rows, corner) if label), 2 * gap)
    above = _room((label.height for label in (*columns, corner) if label), gap)
    under = _room((label.height for label in below.values()), gap)
    step = cell[0] + gap, max(cell[1] + under, line if rows else 0) + gap
    width = max(left + len(page.columns) * step[0] - gap, 24 * text)
    written = ((grid.title, round(text * 1.5)), (grid.about, text), (grid.subtitle, text), (page.title, text))
    titles = tuple(fit(title, size, width, 2) for title, size in written if one_line(title))
    top = text + sum(label.height for label in titles) + (text if titles else 0) + above
    size = width + 2 * text, top + len(page.rows) * step[1] - gap + text
    return PageLayout(size, (text + left, top), step, titles, rows, columns, corner, below)


def _room(needed: Iterable[int], space: int) -> int:
    """The largest of some lengths and a space, or 0 if there is none."""
    largest = max(needed, default=0)
    return largest + space if largest else 0
