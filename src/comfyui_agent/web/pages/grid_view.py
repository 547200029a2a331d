"""The part of a batch that is on a screen: a page of its matrix, or a part of its contact sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations

from comfyui_agent.batches.grids import NoGrid, combinations_of, layout_of
from comfyui_agent.batches.sweep_request import GridAxes
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.grid_layout import CellPlace, GridLayout, axis_label
from comfyui_agent.web.screens import View

MOST_CELLS = 600
ON_A_SHEET = 120
MOST_COLUMNS = 60
VALUES_SHOWN = 12


@dataclass(frozen=True)
class GridView:
    """The cells of a batch that are shown. Only a matrix has headings."""

    indexes: tuple[int, ...]
    words: str = ""
    """Which part it is, if there are more."""
    before: str = ""
    after: str = ""
    above: str = ""
    below: str = ""
    """Links to the parts beside it. In a matrix, columns go sideways and rows down."""
    front: str = ""
    """A link to the part that is being rendered, if that is another one."""
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    corner: str = ""
    axes: Mapping[str, Sequence[tuple[str, int, bool]]] = field(default_factory=dict)
    """The axes that make pages: labels of values near the shown one, their pages, and which is shown."""
    layouts: Sequence[tuple[str, str, bool]] = ()
    """Each pair of axes that can be columns and rows, and which is shown."""
    wanted: GridAxes = field(default_factory=GridAxes)
    problem: str = ""

    @property
    def is_matrix(self) -> bool:
        return bool(self.columns)

    @property
    def lines(self) -> list[tuple[str, tuple[int, ...]]]:
        """The rows of a matrix: the heading and the cells of each."""
        across = len(self.columns)
        cells = [self.indexes[start : start + across] for start in range(0, len(self.indexes), across)]
        return list(zip(self.rows, cells, strict=True))


def grid_view_of(view: View, batch: Batch) -> GridView:
    """The part of a batch that the query asks for, or the first."""
    wanted, problem = GridAxes(view.asked("x"), view.asked("y")), ""
    layout: GridLayout | None = None
    try:
        layout = layout_of(batch, wanted)
    except NoGrid:
        wanted, problem = GridAxes(), "There is no such axis: this is how its grid is laid out."
        with suppress(NoGrid):  # a row that was edited by hand
            layout = layout_of(batch, wanted)
    return _matrix(view, batch, layout, wanted, problem) if layout else _sheet(view, batch, problem)


def _sheet(view: View, batch: Batch, problem: str) -> GridView:
    first = view.number("from", 0, max(0, batch.total - 1)) // ON_A_SHEET * ON_A_SHEET
    last = min(first + ON_A_SHEET, batch.total)
    front = min(batch.ended, max(0, batch.total - 1))
    return GridView(
        indexes=tuple(range(first, first + ON_A_SHEET)),
        words=f"{first + 1:,} to {last:,} of {batch.total:,}" if batch.total > ON_A_SHEET else "",
        before=view.link(**{"from": first - ON_A_SHEET or None}) if first else "",
        after=view.link(**{"from": last}) if last < batch.total else "",
        front=view.link(**{"from": front}) if _works(batch) and not first <= front < last else "",
        problem=problem,
    )


def _matrix(view: View, batch: Batch, layout: GridLayout, wanted: GridAxes, problem: str) -> GridView:
    page = max(1, view.number("page", 1, layout.pages)) - 1
    columns, rows = layout.columns, layout.rows
    across = len(columns) if len(columns) <= MOST_COLUMNS else MOST_COLUMNS // 2
    down = max(1, MOST_CELLS // across)
    left = view.number("column", 0, len(columns) - 1) // across * across
    top = view.number("row", 0, len(rows) - 1) // down * down
    right, bottom = min(left + across, len(columns)), min(top + down, len(rows))
    places = [CellPlace(page, row, column) for row in range(top, bottom) for column in range(left, right)]
    parts = [_part("rows", top, bottom, len(rows)), _part("columns", left, right, len(columns))]
    front = layout.place(batch.ended) if layout.has(batch.ended) else CellPlace(page, top, left)
    is_here = front.page == page and top <= front.row < bottom and left <= front.column < right
    there = {"page": front.page + 1, "row": front.row, "column": front.column}
    return GridView(
        indexes=tuple(map(layout.index, places)),
        words=", ".join(filter(None, parts)),
        before=view.link(column=left - across or None) if left else "",
        after=view.link(column=right) if right < len(columns) else "",
        above=view.link(row=top - down or None) if top else "",
        below=view.link(row=bottom) if bottom < len(rows) else "",
        front=view.link(**there) if _works(batch) and not is_here else "",
        columns=tuple(columns[left:right]),
        rows=tuple(rows[top:bottom]),
        corner=layout.corner,
        axes=_axes(layout, page),
        layouts=_layouts(batch, layout),
        wanted=wanted,
        problem=problem,
    )


def _works(batch: Batch) -> bool:
    """Whether members of the batch are still to be rendered."""
    return not batch.status.has_ended and batch.pending + batch.processing > 0


def _part(what: str, first: int, last: int, of: int) -> str:
    return f"{what} {first + 1:,} to {last:,} of {of:,}" if last - first < of else ""


def _axes(layout: GridLayout, page: int) -> dict[str, list[tuple[str, int, bool]]]:
    chosen = layout.chosen(page)
    found: dict[str, list[tuple[str, int, bool]]] = {}
    for number, axis in enumerate(layout.others):
        choices = found.setdefault(axis.name, [])
        for value in _near(chosen[number], len(axis.values)):
            there = layout.page([*chosen[:number], value, *chosen[number + 1 :]])
            label = axis_label(axis, value).removeprefix(f"{axis.name} = ")
            choices.append((label, there + 1, value == chosen[number]))
    return found


def _near(here: int, count: int) -> Sequence[int]:
    """All values, or of many those around one and both ends."""
    if count <= VALUES_SHOWN:
        return range(count)
    first = min(max(0, here - VALUES_SHOWN // 2), count - VALUES_SHOWN)
    return sorted({0, *range(first, first + VALUES_SHOWN), count - 1})


def _layouts(batch: Batch, layout: GridLayout) -> list[tuple[str, str, bool]]:
    combinations = combinations_of(batch)
    varying = [axis.name for axis in combinations.axes if len(axis.values) > 1] if combinations else []
    pairs = permutations(varying, 2) if len(varying) <= 4 else ()
    return [(x, y, (x, y) == (layout.x, layout.y)) for x, y in pairs]
