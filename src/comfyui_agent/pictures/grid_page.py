"""The comparison grid as one self-contained HTML page.

All texts are escaped, and the page's policy allows only our own script and style. Values are sent as texts, because
browsers cannot hold a seed of 64 bits as a number.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from comfyui_agent.domain.texts import json_text, printable, whole
from comfyui_agent.domain.values import Token, written
from comfyui_agent.pictures.grid import Cell, Layout, Page, Place
from comfyui_agent.pictures.grid_drawing import MARKS, CellText, text_in
from comfyui_agent.pictures.grid_sources import Source

MOST_EMBEDDED = 24 * 1024 * 1024
"""Pictures are embedded in the page if all of them together are no larger."""
LONGEST_TEXT = 2_000
MEDIA_TYPES = {
    "PNG": "image/png",
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "AVIF": "image/avif",
    "BMP": "image/bmp",
}
"""Formats that browsers show. Pictures of other formats are shown as thumbnails."""

LIKE_ANOTHER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|yes|no|on|off", re.IGNORECASE)
"""Texts that would be read as a number or a boolean without quotes."""


def write_page(
    file: IO[bytes], layout: Layout, thumbnails: Mapping[Place, bytes], problems: Mapping[Place, str]
) -> None:
    """Write the page of a drawn grid."""
    page = GridPage(layout, thumbnails, problems)
    template = _asset("html")
    for part in re.split(r"(\{\{\w+\}\})", template):
        if part.startswith("{{"):
            for piece in page.part(part.strip("{}")):
                file.write(piece.encode("utf-8"))
        else:
            file.write(part.encode("utf-8"))


class GridPage:
    """The parts of the page, by their names in its template."""

    def __init__(self, layout: Layout, thumbnails: Mapping[Place, bytes], problems: Mapping[Place, str]) -> None:
        self._layout = layout
        self._grid = layout.grid
        self._thumbnails = thumbnails
        self._sources = {**layout.sources, **{place: Source(problem=text) for place, text in problems.items()}}
        self._script = _asset("js")
        self._style = _asset("css") + _shape(*layout.cell)
        self._embeds = sum(size_of(cell.file) for place, cell in self._cells() if place in thumbnails) <= MOST_EMBEDDED

    def part(self, name: str) -> Iterator[str]:
        """The pieces of a part, in order."""
        parts: dict[str, Callable[[], Iterator[str]]] = {
            "policy": self._policy,
            "title": self._title,
            "subtitle": self._subtitle,
            "tabs": self._tabs,
            "pages": self._pages,
            "notice": self._notice,
            "cells": self._data,
            "files": self._files,
            "style": lambda: iter([self._style]),
            "script": lambda: iter([self._script]),
        }
        return parts[name]()

    def _policy(self) -> Iterator[str]:
        own = "'self' file:"
        yield f"default-src 'none'; img-src {own} data:; media-src {own}; script-src '{_digest(self._script)}'; "
        yield f"style-src '{_digest(self._style)}'; base-uri 'none'; form-action 'none'"

    def _title(self) -> Iterator[str]:
        yield escaped(self._grid.title)

    def _subtitle(self) -> Iterator[str]:
        yield escaped(self._grid.subtitle)

    def _notice(self) -> Iterator[str]:
        """Whether files must be sent along with the page."""
        kinds = {self._kind(place) for place, _ in self._cells()} - {""}
        if any(self._is_embedded(place) for place, _ in self._cells()):
            yield "All pictures are in this page"
            yield "; other files lie beside it." if kinds - {"Picture"} else ": it can be sent as it is."
        elif kinds:
            yield "The files in full size lie beside this page: send them along with it."

    def _tabs(self) -> Iterator[str]:
        if len(self._grid.pages) > 1:
            yield '<nav class="tabs" aria-label="Pages of the grid">'
            for number, page in enumerate(self._grid.pages, start=1):
                yield f'<a href="#page={number}">{escaped(page.title) or number}</a>'
            yield "</nav>"

    def _pages(self) -> Iterator[str]:
        for number, page in enumerate(self._grid.pages):
            title = escaped(page.title or self._grid.title)
            yield f'<section class="page" id="page-{number + 1}" aria-label="{title}">'
            yield from self._sheet(number, page) if self._grid.is_sheet else self._table(number, page)
            yield "</section>\n"

    def _sheet(self, number: int, page: Page) -> Iterator[str]:
        yield '<ul class="sheet">'
        for cell in sorted(page.cells, key=lambda cell: (cell.row, cell.column)):
            yield f'<li data-row="{cell.row}" data-column="{cell.column}">'
            yield from self._cell((number, cell.row, cell.column), cell)
            yield f'<p class="label" title="{escaped(cell.label)}">{escaped(cell.label)}</p></li>\n'
        yield "</ul>"

    def _table(self, number: int, page: Page) -> Iterator[str]:
        cells = {(cell.row, cell.column): cell for cell in page.cells}
        yield f'<table><thead><tr><td class="corner"><span>{escaped(page.corner)}</span></td>'
        yield from (f'<th scope="col">{_heading(column)}</th>' for column in page.columns)
        yield "</tr></thead><tbody>\n"
        for row, heading in enumerate(page.rows):
            yield f'<tr><th scope="row">{_heading(heading)}</th>'
            for column in range(len(page.columns)):
                yield f'<td data-row="{row}" data-column="{column}">'
                if (row, column) in cells:
                    yield from self._cell((number, row, column), cells[row, column])
                yield "</td>"
            yield "</tr>\n"
        yield "</tbody></table>"

    def _cell(self, place: Place, cell: Cell) -> Iterator[str]:
        """A frame with the picture, video or text, and a button to pick it."""
        name, source = name_of(place), self._sources[place]
        file = f' href="{html.escape(relative(cell.href))}"' if cell.href else ""
        yield f'<div class="cell {cell.state}" id="cell-{name}">'
        if self._kind(place) in ("Video", "Audio") and file:
            element = source.kind.lower()
            yield f'<{element} class="open" controls preload="none"{file.replace("href", "src", 1)}></{element}>'
            yield '<button class="enlarge" aria-label="Show large, with its settings">⤢</button>'
        else:
            element = "a" if file else "button"
            yield f'<{element} class="open"{file} title="{escaped(cell.label)}">'
            yield from self._inside(place, cell, source)
            yield f"</{element}>"
        if self._kind(place):
            yield f'<button class="pick" aria-pressed="false" aria-label="Compare {escaped(cell.label)}"></button>'
        yield "</div>"

    def _inside(self, place: Place, cell: Cell, source: Source) -> Iterator[str]:
        if place in self._thumbnails:
            data = _base64(self._thumbnails[place])
            alternative = escaped(cell.label)
            yield f'<img alt="{alternative}" loading="lazy" decoding="async" src="data:image/jpeg;base64,{data}">'
        else:
            text = text_in(cell, source)
            kind = "word attention" if text.mark == MARKS["failed"] else "word"
            yield f'<span class="{kind}"><b>{text.mark}</b> {escaped(text.word)}'
            yield f"<small>{escaped(text.detail)}</small></span>"

    def _data(self) -> Iterator[str]:
        yield "["
        for number, (place, cell) in enumerate(self._cells()):
            yield ("," if number else "") + _script_safe(json_text(self._about(place, cell))) + "\n"
        yield "]"

    def _about(self, place: Place, cell: Cell) -> dict[str, Any]:
        """The data of a cell for the script. `word` stands in place of a picture."""
        source = self._sources[place]
        text = CellText("", "") if place in self._thumbnails else text_in(cell, source)
        return {
            "name": name_of(place),
            "label": _cut(cell.label),
            "kind": self._kind(place),
            "href": relative(cell.href) if cell.href else "",
            "isShown": bool(source.kind) or source.format in MEDIA_TYPES,
            "embedded": f"data:{MEDIA_TYPES[source.format]};base64," if self._is_embedded(place) else "",
            "size": f"{source.size[0]} x {source.size[1]} pixels" if source.is_picture else "",
            "mark": text.mark,
            "word": text.word,
            "detail": _cut(text.detail),
            "settings": [[_cut(name), _cut(_text(value))] for name, value in cell.settings.items()],
            "json": json.dumps(dict(cell.settings), indent=2, ensure_ascii=False),
            "flags": flags(cell.settings),
        }

    def _files(self) -> Iterator[str]:
        for place, cell in self._cells():
            if cell.file is not None and self._is_embedded(place):
                content = _base64(cell.file.read_bytes())
                yield f'<script type="text/plain" id="file-{name_of(place)}">{content}</script>\n'

    def _kind(self, place: Place) -> str:
        """Picture, Video, Audio or 3D model. Empty if there is nothing to show."""
        source = self._sources[place]
        return "Picture" if place in self._thumbnails else "" if source.problem else source.kind

    def _is_embedded(self, place: Place) -> bool:
        return self._embeds and place in self._thumbnails and self._sources[place].format in MEDIA_TYPES

    def _cells(self) -> Iterator[tuple[Place, Cell]]:
        for number, page in enumerate(self._grid.pages):
            for cell in page.cells:
                yield (number, cell.row, cell.column), cell


def name_of(place: Place) -> str:
    """The name of a cell in links: page, row and column, counted from 1."""
    return ".".join(str(part + 1) for part in place)


def size_of(file: Path | None) -> int:
    try:
        return file.stat().st_size if file is not None else 0
    except (OSError, ValueError):
        return 0


def relative(path: str) -> str:
    """A path below the folder of the page as a link. It never leads to another server."""
    local = path.lstrip("/")
    try:
        return "./" + quote(local, safe="/", errors="surrogateescape")  # bytes in names of files
    except UnicodeEncodeError:
        return "./" + quote(local, safe="/", errors="replace")


def flags(settings: Mapping[str, Any]) -> str:
    """Settings as options of a command: `--set seed=1 --set 'text="a, b"'`."""
    return " ".join(f"--set {shlex.quote(f'{name}={_typed(value)}')}" for name, value in settings.items())


def _typed(value: Any) -> str:
    """A value as written in a sweep, quoted if it would be read as several values or another type."""
    is_number = isinstance(value, (bool, int, float))
    is_plain = not is_number and (not isinstance(value, str) or bool(LIKE_ANOTHER.fullmatch(value)))
    return written([Token(_text(value), is_plain)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _cut(text: str) -> str:
    return printable(whole(text, LONGEST_TEXT))


def escaped(text: str) -> str:
    """A text for HTML, between tags or in an attribute."""
    return html.escape(_cut(text), quote=True)


def _heading(text: str) -> str:
    return f'<span title="{escaped(text)}">{escaped(text)}</span>'


def _script_safe(text: str) -> str:
    """JSON that cannot end the script element around it."""
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _shape(width: int, height: int) -> str:
    longest = max(width, height)
    return f":root {{ --across: {width / longest:.4f}; --down: {height / longest:.4f}; }}\n"


def _digest(text: str) -> str:
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _asset(kind: str) -> str:
    return resources.files(__package__).joinpath(f"grid_page.{kind}").read_text(encoding="utf-8")
