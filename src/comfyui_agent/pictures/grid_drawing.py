"""Drawing a comparison grid, with one source in memory at a time. Runs on Python 3.9, with Pillow from 10.1 on."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageDraw

from comfyui_agent.pictures.grid import Box, Cell, Layout, Place, size_within
from comfyui_agent.pictures.grid_sources import WHITE, Size, Source, decode, problem_with, resized
from comfyui_agent.pictures.labels import MOST_LINES, Colour, draw_mark, fit, line_height

THUMBNAIL = 320
TEXT: Colour = (51, 51, 56)
QUIET: Colour = (98, 98, 106)
FRAME: Colour = (208, 208, 214)
EMPTY: Colour = (246, 246, 248)
ATTENTION: Colour = (164, 74, 6)
NEEDS_ATTENTION = "△"
BADGES = {
    "done": ("●", "Done"),
    "failed": (NEEDS_ATTENTION, "Needs attention"),
    "pending": ("○", "Pending"),
    "processing": ("◐", "Rendering"),
    "cancelled": ("", "Cancelled"),
    "dismissed": ("", "Dismissed"),
}


@dataclass
class Drawn:
    """The picture of a page, JPEG thumbnails of its cells, and the problems of files that could not be decoded."""

    picture: Image.Image
    thumbnails: dict[Place, bytes] = field(default_factory=dict)
    problems: dict[Place, str] = field(default_factory=dict)


def draw(layout: Layout, number: int, *, with_thumbnails: bool = True) -> Drawn:
    """Draw a page. A broken source leaves a text in its cell."""
    page = layout.grid.pages[number]
    drawn = Drawn(Image.new("RGB", layout.pages[number].size, WHITE))
    drawing = ImageDraw.Draw(drawn.picture)
    _draw_headings(drawing, layout, number)
    for cell in page.cells:
        place, box = (number, cell.row, cell.column), layout.box(number, cell.row, cell.column)
        drawing.rectangle((box[0] - 1, box[1] - 1, box[2], box[3]), fill=WHITE, outline=FRAME)
        source = layout.sources[place]
        if source.is_picture and cell.file is not None:
            try:
                thumbnail = _draw_picture(drawn.picture, box, cell.file, source.size, with_thumbnails)
                if thumbnail:
                    drawn.thumbnails[place] = thumbnail
                continue
            except Exception as error:  # noqa: BLE001 - one broken file must not spoil the grid
                source = Source(problem=problem_with(cell.file, error))
                drawn.problems[place] = source.problem
        _draw_text(drawn.picture, box, layout.text, text_in(cell, source))
    return drawn


def _draw_headings(drawing: ImageDraw.ImageDraw, layout: Layout, number: int) -> None:
    page, text = layout.pages[number], layout.text
    top = text
    for place, label in enumerate(page.titles):
        label.draw(drawing, text, top, TEXT if place == 0 else QUIET)
        top += label.height
    above = page.first[1] - max(4, text // 2)
    for column, label in enumerate(page.columns):
        left, _, right, _ = layout.box(number, 0, column)
        label.draw(drawing, left, above - label.height, TEXT, centred_to=right)
    for row, label in enumerate(page.rows):
        _, upper, _, lower = layout.box(number, row, 0)
        label.draw(drawing, text, (upper + lower - label.height) // 2, TEXT)
    if page.corner:
        page.corner.draw(drawing, text, above - page.corner.height, QUIET)
    for (row, column), label in page.below.items():
        left, _, right, lower = layout.box(number, row, column)
        label.draw(drawing, left, lower + max(4, text // 2) // 2, TEXT, centred_to=right)


def _draw_picture(canvas: Image.Image, box: Box, file: Path, size: Size, with_thumbnail: bool) -> bytes:
    """Draw a file into its cell. Returns a JPEG thumbnail if one is wanted."""
    cell = box[2] - box[0], box[3] - box[1]
    shown = size_within(size, cell)
    small = size_within(size, (THUMBNAIL, THUMBNAIL)) if with_thumbnail else (0, 0)
    image = decode(file, (max(shown[0], small[0]), max(shown[1], small[1])))
    fitted = resized(image, shown)
    canvas.paste(fitted, (box[0] + (cell[0] - shown[0]) // 2, box[1] + (cell[1] - shown[1]) // 2))
    if not with_thumbnail:
        return b""
    thumbnail = io.BytesIO()
    larger = fitted if fitted.width >= small[0] else image
    resized(larger, small, Image.Resampling.HAMMING).save(thumbnail, "JPEG", quality=80)
    return thumbnail.getvalue()


@dataclass(frozen=True)
class CellText:
    """The text of a cell without a picture."""

    mark: str
    word: str
    detail: str = ""


def text_in(cell: Cell, source: Source) -> CellText:
    if source.problem:
        return CellText(NEEDS_ATTENTION, "Cannot be shown", source.problem)
    if source.kind:
        return CellText("", source.kind, cell.file.name if cell.file else "")
    mark, word = BADGES.get(cell.state, ("", cell.state))
    return CellText(mark, word, cell.reason or ("no file" if cell.state == "done" else ""))


def _draw_text(canvas: Image.Image, box: Box, text: int, shown: CellText) -> None:
    """Draw a light box with a mark, a word and details, as far as they fit."""
    drawing = ImageDraw.Draw(canvas)
    drawing.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=EMPTY)
    colour = ATTENTION if shown.mark == NEEDS_ATTENTION else QUIET
    left, right = box[0] + text // 2, box[2] - text // 2
    room = box[3] - box[1]
    parts = [fit(shown.word, text, right - left, max(0, min(2, room // line_height(text))))]
    side = text * 3 // 2 if shown.mark and room >= 5 * text else 0
    small = max(10, round(text * 0.8))
    lines = (room - side - text - parts[0].height) // line_height(small)
    parts.append(fit(shown.detail, small, right - left, max(0, min(MOST_LINES, lines))))
    top = box[1] + (room - side - sum(part.height for part in parts)) // 2
    if side:
        draw_mark(canvas, shown.mark, ((left + right - side) // 2, top - side // 4), side, colour)
        top += side
    for number, part in enumerate(parts):
        part.draw(drawing, left, top, QUIET if number else colour, centred_to=right)
        top += part.height
