"""The comparison grid as a picture: where everything goes, and the drawing of it, one source at a time.

Runs on Python 3.9, with Pillow from 10.1 on.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, UnidentifiedImageError

from comfyui_agent.pictures.labels import MOST_LINES, Colour, Label, draw_mark, fit, line_height, one_line

MOST_PIXELS = 80_000_000
LONGEST_SIDE = 60_000
MOST_SOURCE_PIXELS = 8192 * 8192
"""A source above this is not decoded: with the grid beside it, it would fill the memory of a small machine."""
SMALLEST_CELL = 8
EMPTY_CELL = 320
TINY = 64
"""Pictures below this many pixels are enlarged, up to twice this; cells are no smaller unless the grid must be."""
THUMBNAIL = 320

BACKGROUND: Colour = (255, 255, 255)
TEXT: Colour = (51, 51, 56)
QUIET: Colour = (98, 98, 106)
FRAME: Colour = (208, 208, 214)
EMPTY: Colour = (246, 246, 248)
ATTENTION: Colour = (164, 74, 6)

READABLE = ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP", "TIFF", "PPM", "TGA", "QOI", "JPEG2000")
"""What is opened at all: Pillow would start other programs for some of the rest."""
OTHER_KINDS = {
    "Video": "mp4 webm mov mkv avi m4v mpg mpeg ogv",
    "Audio": "mp3 wav flac ogg opus m4a aac",
    "3D model": "glb gltf obj stl ply fbx usdz splat ksplat spz",
}
MARKS = {"done": "●", "failed": "△", "pending": "○", "processing": "◐", "cancelled": "", "dismissed": ""}
WORDS = {
    "done": "Done",
    "failed": "Needs attention",
    "pending": "Pending",
    "processing": "Rendering",
    "cancelled": "Cancelled",
    "dismissed": "Dismissed",
}
Size = tuple[int, int]
Box = tuple[int, int, int, int]
Place = tuple[int, int, int]
"""Page, row and column of a cell, from 0."""


@dataclass(frozen=True)
class Cell:
    """One job of the batch: where it stands, its file if there is one, and what people are told about it."""

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
    """All that a grid shows. Each page becomes a picture."""

    pages: tuple[Page, ...]
    title: str = ""
    subtitle: str = ""
    is_sheet: bool = False
    """A contact sheet: no headings, a label below each cell."""
    cell_pixels: int | None = None


@dataclass(frozen=True)
class Source:
    """What the head of a cell's file says: a picture of this size, another kind of file, or why there is nothing."""

    size: Size = (0, 0)
    format: str = ""
    kind: str = ""
    trouble: str = ""

    @property
    def is_picture(self) -> bool:
        return bool(self.format)


def look_at(file: Path | None) -> Source:
    """What a file is, from its first bytes: nothing is decoded."""
    if file is None:
        return Source()
    kind = next((kind for kind, ends in OTHER_KINDS.items() if file.suffix.lower().lstrip(".") in ends.split()), "")
    if not os.path.isfile(file):  # noqa: PTH113 - false for a path that cannot be, where pathlib raises
        return Source(kind=kind, trouble=f"{file.name} is not there")
    if kind:
        return Source(kind=kind)
    try:
        with _opened(file) as image:
            source = Source(image.size, image.format or "")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the others are shown
        return Source(trouble=_trouble(file, error))
    width, height = source.size
    if width * height > MOST_SOURCE_PIXELS and source.format != "JPEG":
        return Source(trouble=f"{file.name} is too large to be shown here: {width} x {height} pixels")
    return source


def decode(file: Path, at_least: Size) -> Image.Image:
    """The first frame of a picture file, not smaller than asked for; a large JPEG comes smaller than it is.

    Raises whatever Pillow raises for a file that is broken.
    """
    with _opened(file) as image:
        image.draft(None, at_least)
        if image.width * image.height > MOST_SOURCE_PIXELS:
            raise Image.DecompressionBombError
        image.load()
        return _in_eight_bits(image)


def resized(image: Image.Image, size: Size, way: Image.Resampling = Image.Resampling.LANCZOS) -> Image.Image:
    """A picture in a size, in plain colours; white shows where it is transparent."""
    if image.size != size:
        way = Image.Resampling.NEAREST if size[0] > image.width else way
        image = image.resize(size, way, reducing_gap=3.0)
    if image.mode == "RGBA":
        plain = Image.new("RGB", size, BACKGROUND)
        plain.paste(image, mask=image.getchannel("A"))
        return plain
    return image.convert("RGB")


@contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    Image.init()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large and of slightly odd files: the first are measured here
        with Image.open(file, formats=[name for name in READABLE if name in Image.OPEN]) as image:
            yield image


def _in_eight_bits(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value * (1 / 257)).convert("L")
    if image.mode == "F":
        low, high = image.getextrema()
        scale = 255 / max(1.0, float(str(high))) if float(str(low)) >= 0 else 255.0
        return image.point(lambda value: value * scale + 0).convert("L")
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image if image.mode == "L" else image.convert("RGB")


def _trouble(file: Path, error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError):
        return f"{file.name} is too large to be shown here"
    if isinstance(error, PermissionError):
        return f"{file.name} may not be read"
    if isinstance(error, FileNotFoundError):
        return f"{file.name} is not there"
    what = "is damaged" if isinstance(error, (OSError, SyntaxError, EOFError)) else f"cannot be read ({error})"
    if isinstance(error, UnidentifiedImageError):
        what = "is empty" if file.stat().st_size == 0 else "is not a picture that can be shown here"
    return f"{file.name} {what}"


def size_within(size: Size, cell: Size) -> Size:
    """The size at which a picture is shown in a cell: its own, or less; tiny ones are enlarged by a whole number."""
    share = min(cell[0] / size[0], cell[1] / size[1])
    if share < 1:
        return max(1, round(size[0] * share)), max(1, round(size[1] * share))
    longest = max(size)
    times = max(1, int(min(share, 2 * TINY / longest))) if longest < TINY else 1
    return size[0] * times, size[1] * times


@dataclass(frozen=True)
class PageLayout:
    """Where the parts of a page go; `first` is the left top of the cell in row 0 and column 0."""

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
    """Where everything goes: `box` is the place of a cell in the picture of its page."""

    grid: Grid
    cell: Size
    text: int
    """The size of letters in pixels; the title is larger, reasons are smaller."""
    pages: tuple[PageLayout, ...]
    sources: Mapping[Place, Source]

    def box(self, page: int, row: int, column: int) -> Box:
        """Left, top, right and bottom of a cell; its picture stands in the middle of that."""
        layout = self.pages[page]
        left = layout.first[0] + column * layout.step[0]
        top = layout.first[1] + row * layout.step[1]
        return left, top, left + self.cell[0], top + self.cell[1]


def lay_out(grid: Grid) -> Layout:
    """The layout of a grid, its cells as large as wanted or as the bounds of a picture allow.

    ValueError if there are more cells than a picture can hold.
    """
    sources = {
        (number, cell.row, cell.column): look_at(cell.file)
        for number, page in enumerate(grid.pages)
        for cell in page.cells
    }
    wanted = _wanted_cell(grid, [source.size for source in sources.values() if source.is_picture])
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
    """How many times too long the sides of a picture are."""
    return max(max(size) / LONGEST_SIDE, math.sqrt(size[0] * size[1] / MOST_PIXELS))


def _wanted_cell(grid: Grid, sizes: list[Size]) -> Size:
    largest = (max(width for width, _ in sizes), max(height for _, height in sizes)) if sizes else (1, 1)
    return _scaled(largest, grid.cell_pixels or (max(TINY, *largest) if sizes else EMPTY_CELL))


def _scaled(size: Size, longest: int) -> Size:
    share = longest / max(size)
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def _arranged(grid: Grid, page: Page, cell: Size, text: int) -> PageLayout:
    """A page with a margin, its titles, its headings above and beside the cells or its labels below them."""
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
    titles = tuple(_titles(grid, page, text, width))
    top = text + sum(label.height for label in titles) + (text if titles else 0) + above
    size = width + 2 * text, top + len(page.rows) * step[1] - gap + text
    return PageLayout(size, (text + left, top), step, titles, rows, columns, corner, below)


def _room(needed: Iterable[int], space: int) -> int:
    """Room for the largest, with a space beside it; none if there is nothing."""
    largest = max(needed, default=0)
    return largest + space if largest else 0


def _titles(grid: Grid, page: Page, text: int, width: int) -> Iterator[Label]:
    for words, size in ((grid.title, round(text * 1.5)), (grid.subtitle, text), (page.title, text)):
        if one_line(words):
            yield fit(words, size, width, 2)


@dataclass
class Drawn:
    """The picture of a page, and small JPEGs of what it shows; `troubles` says what could not be read after all."""

    picture: Image.Image
    thumbnails: dict[Place, bytes] = field(default_factory=dict)
    troubles: dict[Place, str] = field(default_factory=dict)


def draw(layout: Layout, number: int, *, with_thumbnails: bool = True) -> Drawn:
    """The picture of a page. One source is in memory at a time; one that is broken leaves a word in its place."""
    page = layout.grid.pages[number]
    drawn = Drawn(Image.new("RGB", layout.pages[number].size, BACKGROUND))
    drawing = ImageDraw.Draw(drawn.picture)
    _draw_headings(drawing, layout, number)
    for cell in page.cells:
        place, box = (number, cell.row, cell.column), layout.box(number, cell.row, cell.column)
        drawing.rectangle((box[0] - 1, box[1] - 1, box[2], box[3]), fill=BACKGROUND, outline=FRAME)
        source = layout.sources[place]
        if source.is_picture and cell.file is not None:
            try:
                thumbnail = _draw_picture(drawn.picture, box, cell.file, source.size, with_thumbnails)
                if thumbnail:
                    drawn.thumbnails[place] = thumbnail
                continue
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one file, the others are shown
                source = Source(trouble=_trouble(cell.file, error))
                drawn.troubles[place] = source.trouble
        _draw_word(drawn.picture, box, layout.text, told(cell, source))
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
    """Draw a file into its cell; a small JPEG of it, if that is wanted."""
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
    """What stands in a cell without a picture."""

    mark: str
    word: str
    detail: str = ""


def told(cell: Cell, source: Source) -> CellText:
    """What people are told in place of a picture."""
    if source.trouble:
        return CellText(MARKS["failed"], "Cannot be shown", source.trouble)
    if source.kind:
        return CellText("", source.kind, cell.file.name if cell.file else "")
    word = WORDS.get(cell.state, cell.state)
    return CellText(MARKS.get(cell.state, ""), word, cell.reason or ("no file" if cell.state == "done" else ""))


def _draw_word(canvas: Image.Image, box: Box, text: int, told: CellText) -> None:
    """A light box with a mark, a word and what there is to say, as far as it fits."""
    drawing = ImageDraw.Draw(canvas)
    drawing.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=EMPTY)
    colour = ATTENTION if told.mark == MARKS["failed"] else QUIET
    left, right = box[0] + text // 2, box[2] - text // 2
    room = box[3] - box[1]
    parts = [fit(told.word, text, right - left, max(0, min(2, room // line_height(text))))]
    side = text * 3 // 2 if told.mark and room >= 5 * text else 0
    small = max(10, round(text * 0.8))
    lines = (room - side - text - parts[0].height) // line_height(small)
    parts.append(fit(told.detail, small, right - left, max(0, min(MOST_LINES, lines))))
    top = box[1] + (room - side - sum(part.height for part in parts)) // 2
    if side:
        draw_mark(canvas, told.mark, ((left + right - side) // 2, top - side // 4), side, colour)
        top += side
    for number, part in enumerate(parts):
        part.draw(drawing, left, top, QUIET if number else colour, centred_to=right)
        top += part.height
