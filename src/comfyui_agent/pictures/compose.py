"""Composing a grid in a process of its own: `python -m comfyui_agent.pictures.compose SPEC.json`.

It prints one line of JSON: the pictures, the page, and the size of the first picture. On trouble it prints one line
to stderr, exits with 1, and leaves what an earlier run made as it was.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from comfyui_agent.domain.grid_layout import picture_paths
from comfyui_agent.domain.texts import printable, whole
from comfyui_agent.pictures.grid import WORDS, Cell, Grid, Layout, Page, Place, draw
from comfyui_agent.pictures.grid import lay_out as lay_out_grid
from comfyui_agent.pictures.grid_page import write_page

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "compress_level": 3},
    "jpeg": {"format": "JPEG", "quality": 90},
}
CELL_PIXELS = range(16, 16_385)
MOST_PLACES = 1_000_000
LONGEST_MESSAGE = 500
MARK = ".e3part"
FORGOTTEN_SECONDS = 3600


class BadSpec(ValueError):
    """A specification that cannot be followed."""


@dataclass(frozen=True)
class Spec:
    """What to compose, and where to."""

    grid: Grid
    format: str
    picture: Path
    page: Path

    @property
    def pictures(self) -> list[Path]:
        """The file of each page of the grid."""
        return picture_paths(self.picture, len(self.grid.pages))

    def sources(self) -> set[Path]:
        return {cell.file for page in self.grid.pages for cell in page.cells if cell.file is not None}


def lay_out(document: Mapping[str, Any]) -> Layout:
    """Where everything of a specification goes; `box(page, row, column)` tells it for a cell."""
    return lay_out_grid(read_spec(document).grid)


def compose(spec: Spec) -> dict[str, Any]:
    """Make the pictures and the page, all of them or none; what was made."""
    layout = lay_out_grid(spec.grid)
    thumbnails: dict[Place, bytes] = {}
    troubles: dict[Place, str] = {}

    def write_picture(number: int, file: IO[bytes]) -> None:
        drawn = draw(layout, number)
        drawn.picture.save(file, **FORMATS[spec.format])
        thumbnails.update(drawn.thumbnails)
        troubles.update(drawn.troubles)

    with Replacing() as files:
        for number, path in enumerate(spec.pictures):
            files.write(path, partial(write_picture, number))
        files.write(spec.page, lambda file: write_page(file, layout, thumbnails, troubles))
        files.publish()
    width, height = layout.pages[0].size
    return {"pictures": [str(path) for path in spec.pictures], "page": str(spec.page), "width": width, "height": height}


class Replacing:
    """Files that are written beside the ones they replace, and take their names when all of them are on disk."""

    def __init__(self) -> None:
        self._written: list[tuple[Path, Path]] = []

    def __enter__(self) -> Replacing:
        return self

    def write(self, path: Path, write: Callable[[IO[bytes]], None]) -> None:
        _remove_forgotten(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}{MARK}")
        self._written.append((temporary, path))
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())

    def publish(self) -> None:
        for temporary, path in self._written:
            temporary.replace(path)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for temporary, _ in self._written:
            temporary.unlink(missing_ok=True)


def _remove_forgotten(path: Path) -> None:
    """What a process left that was killed while it wrote the same file."""
    name = re.compile(re.escape(f".{path.name}.") + "([0-9]{1,9})-[0-9a-f]{32}" + re.escape(MARK))
    for other in path.parent.iterdir():
        if known := name.fullmatch(other.name):
            with suppress(OSError):
                if not _is_alive(int(known[1])) or other.stat().st_mtime < time.time() - FORGOTTEN_SECONDS:
                    other.unlink()


def _is_alive(process: int) -> bool:
    """Whether a process may still be there, as far as can be told without harm."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:  # one that has ended, and that nobody has asked about yet
        said = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        return not said.rpartition(")")[2].startswith(" Z")
    except OSError:
        return True


def read_spec(document: Any) -> Spec:
    """A specification from its JSON. BadSpec says what is wrong with it."""
    pages = _expect(document, "", "pages", list)
    spec = Spec(
        grid=Grid(
            pages=tuple(_read_page(page, number, bool(document.get("sheet"))) for number, page in enumerate(pages)),
            title=_expect(document, "", "title", str, ""),
            subtitle=_expect(document, "", "subtitle", str, ""),
            is_sheet=bool(document.get("sheet")),
            cell_pixels=_expect(document, "", "cell_pixels", int, None),
        ),
        format=_expect(document, "", "format", str, "png"),
        picture=Path(_expect(document, "", "picture", str)),
        page=Path(_expect(document, "", "page", str)),
    )
    if not pages:
        raise BadSpec("the specification has no pages")
    if spec.format not in FORMATS:
        raise BadSpec(f"format {spec.format!r} does not exist: use {' or '.join(FORMATS)}")
    if spec.grid.cell_pixels is not None and spec.grid.cell_pixels not in CELL_PIXELS:
        raise BadSpec(
            f"cell_pixels is {spec.grid.cell_pixels}: use a number from {CELL_PIXELS.start} to {CELL_PIXELS[-1]}"
        )
    for path in {*spec.pictures, spec.page} & spec.sources():
        raise BadSpec(f"{path} is one of the files to show: the grid would overwrite it")
    return spec


def _read_page(document: Any, number: int, is_sheet: bool) -> Page:
    where = f"pages[{number}]"
    listed = _expect(document, where, "cells", list, [])
    cells = tuple(_read_cell(cell, f"{where}.cells[{place}]") for place, cell in enumerate(listed))
    rows, columns = (_headings(document, where, key) for key in ("rows", "columns"))
    if is_sheet:
        rows = rows or ("",) * (1 + max((cell.row for cell in cells), default=0))
        columns = columns or ("",) * (1 + max((cell.column for cell in cells), default=0))
    if not 0 < len(rows) * len(columns) <= MOST_PLACES:
        raise BadSpec(f"{where} has {len(rows):,} rows and {len(columns):,} columns: at most {MOST_PLACES:,} cells are")
    taken: set[tuple[int, int]] = set()
    for place, cell in enumerate(cells):
        if cell.row >= len(rows) or cell.column >= len(columns) or (cell.row, cell.column) in taken:
            raise BadSpec(f"{where}.cells[{place}]: row {cell.row}, column {cell.column} is taken or not there")
        taken.add((cell.row, cell.column))
    title, corner = (_expect(document, where, key, str, "") for key in ("title", "corner"))
    return Page(rows, columns, cells, title, corner)


def _read_cell(document: Any, where: str) -> Cell:
    row, column = (_expect(document, where, key, int) for key in ("row", "column"))
    if not (0 <= row < MOST_PLACES and 0 <= column < MOST_PLACES):
        raise BadSpec(f"{where}: row {row}, column {column} is not there")
    file = _expect(document, where, "file", str, None)
    state = _expect(document, where, "state", str)
    if state not in WORDS:
        raise BadSpec(f"{where}.state is {state!r}: use one of {', '.join(WORDS)}")
    href, label, reason = (_expect(document, where, key, str, "") for key in ("href", "label", "reason"))
    settings = _expect(document, where, "settings", dict, {})
    return Cell(row, column, Path(file) if file else None, href, label, settings, state, reason)


def _headings(document: Any, where: str, key: str) -> tuple[str, ...]:
    found = _expect(document, where, key, list, [])
    if not all(isinstance(heading, str) for heading in found):
        raise BadSpec(f"{where}.{key} is not a list of texts")
    return tuple(found)


REQUIRED = object()


def _expect(document: Any, where: str, key: str, kind: type, default: Any = REQUIRED) -> Any:
    """The value of a key, which is of this kind; null is as good as absent."""
    if not isinstance(document, dict):
        raise BadSpec(f"{where or 'the specification'} is not an object")
    value = document.get(key)
    if value is None and default is not REQUIRED:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
        raise BadSpec(f"{where}{'.' if where else ''}{key} is {'missing' if value is None else 'not ' + names[kind]}")
    return value


def main(arguments: list[str]) -> int:
    """The child process; its exit code."""
    try:
        if len(arguments) != 1:
            raise BadSpec("usage: python -m comfyui_agent.pictures.compose SPEC.json, or - to read it from stdin")
        data = sys.stdin.buffer.read() if arguments[0] == "-" else Path(arguments[0]).read_bytes()
        made = compose(read_spec(json.loads(data.decode("utf-8"))))
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever started this wants one line
        message = " ".join(f"{error or type(error).__name__}".split())
        sys.stderr.write(printable(whole(message, LONGEST_MESSAGE)).encode("ascii", "backslashreplace").decode() + "\n")
        return 1
    sys.stdout.write(json.dumps(made) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
