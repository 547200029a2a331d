"""The grid of a batch: pages by its axes, or one contact sheet. Needs Pillow. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from comfyui_agent.domain.combinations import Combinations, Mode
from comfyui_agent.domain.grid_layout import CellPlace, GridLayout, axis_label, layout_by_axes, sheet_place
from comfyui_agent.domain.texts import attention, suggest
from comfyui_agent.domain.values import shortened
from comfyui_agent.nodes.core.batch_state import LOG, BatchState, GridOptions, ImageFile, NoGrid
from comfyui_agent.nodes.host import ComfyUI
from comfyui_agent.pictures.grid import Cell, Grid, Layout, lay_out, pages_of
from comfyui_agent.pictures.grid_drawing import draw

MOST_PAGES = 50
LEAST_CELL = 16


@dataclass(frozen=True)
class Member:
    """The picture of a member, or the reason why it has none."""

    file: Path | None = None
    reason: str = ""


@dataclass(frozen=True)
class BatchGrid:
    """A grid that is laid out and not drawn yet, with the place of each member."""

    warnings: tuple[str, ...]
    """Options that could not be followed, one line each."""
    layout: Layout
    places: Sequence[CellPlace]

    def pictures(self) -> Iterator[Image.Image]:
        """Draw one page after the other. A cell whose file is gone or broken says so."""
        return (draw(self.layout, page, with_thumbnails=False).picture for page in range(len(self.layout.pages)))


def save_grid(batch: BatchState, node_id: str, host: ComfyUI) -> list[ImageFile]:
    """Draw the grid of a batch whose members have ended, and save each page as an output file."""
    options = batch.grid_options.get(node_id, GridOptions())
    source = batch.sources.get(node_id, "")
    needs = f", {attention(len(batch.failed))}" if batch.failed else ""
    grid = lay_out_grid(
        batch.combinations,
        [_member(batch, index, source, host) for index in range(batch.total)],
        options,
        title=options.title.strip() or batch.batch_id,
        subtitle=f"{batch.completed_count} of {batch.total} done{needs}",
    )
    for warning in grid.warnings:
        LOG.warning("Batch %s: %s", batch.batch_id, warning)
    prefix = f"{options.filename_prefix.strip('/') or GridOptions.filename_prefix}/{batch.batch_id}/grid"
    metadata = {**batch.metadata, "e3_batch": batch.summary()}
    return [host.save(picture, prefix, "output", metadata) for picture in grid.pictures()]


def _member(batch: BatchState, index: int, source: str, host: ComfyUI) -> Member:
    """The first picture that the source node saved, or the reason why there is none."""
    if index in batch.failed:
        return Member(reason=batch.failed[index])
    images = batch.pictures.get(index, {}).get(source) or batch.results.get(index, {}).get("images") or []
    return Member(next((path for path in map(host.file_of, images) if path is not None), None))


def lay_out_grid(
    combinations: Combinations, members: Sequence[Member], options: GridOptions, title: str, subtitle: str
) -> BatchGrid:
    """Lay a batch out by its axes if it is a matrix of two or more that vary, else as a contact sheet. What cannot be
    followed gives a warning; NoGrid if the sheet is too large as well."""
    warnings: list[str] = []
    cell_pixels = max(LEAST_CELL, options.cell_pixels) if options.cell_pixels > 0 else None
    total = len(combinations)

    def laid_out(by_axes: GridLayout | None) -> BatchGrid | None:
        places = [by_axes.place(index) if by_axes else sheet_place(index, total) for index in range(total)]
        cells: dict[int, list[Cell]] = {}
        for index, (place, member) in enumerate(zip(places, members)):  # noqa: B905 - Python 3.9
            label = "" if by_axes else _label(combinations, index)
            state = "failed" if member.reason else "done"
            cell = Cell(place.row, place.column, member.file, label=label, state=state, reason=member.reason)
            cells.setdefault(place.page, []).append(cell)
        grid = Grid(pages_of(by_axes, cells), title, subtitle, is_sheet=by_axes is None, cell_pixels=cell_pixels)
        try:
            return BatchGrid(tuple(warnings), lay_out(grid), places)
        except ValueError:  # larger than pictures may be
            return None

    by_axes = layout_by_axes(combinations, *_usable_axes(combinations, options, warnings))
    if by_axes is not None and by_axes.pages > MOST_PAGES:
        warnings.append(
            f"the grid would have {by_axes.pages:,} pages, and {MOST_PAGES} is the most: it is a contact sheet "
            f"instead; give fewer parameters, or make several batches"
        )
    elif by_axes is not None:
        found = laid_out(by_axes)
        if found is not None:
            return found
        warnings.append("the pages of the grid are too large for pictures: it is a contact sheet instead")
    sheet = laid_out(None)
    if sheet is None:
        raise NoGrid(f"{total:,} results do not fit into one picture: make several batches")
    return sheet


def _usable_axes(combinations: Combinations, options: GridOptions, warnings: list[str]) -> tuple[str, str]:
    """The axes that go across and down; empty where none was named that can go there."""
    known = [axis.name for axis in combinations.axes]
    named = {"columns": options.columns.strip(), "rows": options.rows.strip()}
    for key, name in named.items():
        if name and name not in known:
            warnings.append(f"{key}: {shortened(name)} is no parameter of this batch; {suggest(name, known)}")
            named[key] = ""
    columns, rows = named["columns"], named["rows"]
    if (columns or rows) and combinations.mode is Mode.LINEAR:
        warnings.append("columns and rows are for mode matrix: a batch in mode linear is a contact sheet")
    if rows and rows == columns:
        warnings.append(f"rows: {shortened(rows)} goes across already; leave it out, or name another")
        rows = ""
    return columns, rows


def _label(combinations: Combinations, index: int) -> str:
    """The values of a member on the axes that vary: `cfg = 6.5, steps = 20`."""
    chosen = combinations[index]
    axes = list(enumerate(combinations.axes))
    varying = [(number, axis) for number, axis in axes if len(axis.values) > 1] or axes
    return ", ".join(axis_label(axis, chosen[number]) for number, axis in varying)
