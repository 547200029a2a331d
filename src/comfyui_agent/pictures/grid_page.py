"""The comparison grid as one self-contained HTML page. All texts are escaped, and its policy allows only our script and
style. Values are sent as texts, because browsers cannot hold a seed of 64 bits as a number."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from comfyui_agent.domain.texts import json_text, printable, whole
from comfyui_agent.domain.values import Token, written
from comfyui_agent.pictures.grid import Cell, Layout, Place
from comfyui_agent.pictures.grid_drawing import NEEDS_ATTENTION, CellText, text_in
from comfyui_agent.pictures.grid_sources import Source

MOST_EMBEDDED = 24 * 1024 * 1024
"""Pictures are embedded in the page if all of them together are no larger."""
LONGEST_TEXT = 2_000
MEDIA_TYPES = {name: f"image/{name.lower()}" for name in ("PNG", "JPEG", "WEBP", "GIF", "AVIF", "BMP")}
MEDIA_TYPES["MPO"] = "image/jpeg"
"""Formats that browsers show. Pictures of other formats are shown as thumbnails."""
LIKE_ANOTHER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?|true|false|yes|no|on|off", re.IGNORECASE)
"""Texts that would be read as a number or a boolean without quotes."""
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class CellView:
    """A cell for the template. `about` is what the script gets; `file` is set if its content goes into the page."""

    cell: Cell
    thumbnail: bytes | None
    file: Path | None
    about: Mapping[str, Any]


def write_page(
    file: IO[bytes], layout: Layout, thumbnails: Mapping[Place, bytes], problems: Mapping[Place, str]
) -> None:
    templates = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    templates.filters |= {"base64": _base64, "shown": _shown}
    script = (FOLDER / "grid_page.js").read_text(encoding="utf-8")
    across, down = (f"{side / max(layout.cell):.4f}" for side in layout.cell)
    style = (FOLDER / "grid_page.css").read_text(encoding="utf-8")
    style += f":root {{ --across: {across}; --down: {down}; }}\n"
    cells = _views(layout, thumbnails, problems)
    page = templates.get_template("grid_page.html").stream(
        grid=layout.grid,
        cells=cells,
        kinds={view.about["kind"] for view in cells.values()} - {""},
        has_files=any(view.file for view in cells.values()),
        attention=NEEDS_ATTENTION,
        script=Markup(script),  # noqa: S704 - ours
        style=Markup(style),  # noqa: S704 - ours
        digests=[_base64(hashlib.sha256(text.encode()).digest()) for text in (script, style)],
    )
    page.dump(file, encoding="utf-8")


def _views(layout: Layout, thumbnails: Mapping[Place, bytes], problems: Mapping[Place, str]) -> dict[Place, CellView]:
    cells = {
        (number, cell.row, cell.column): cell for number, page in enumerate(layout.grid.pages) for cell in page.cells
    }
    embeds = sum(_size_of(cells[place].file) for place in thumbnails) <= MOST_EMBEDDED
    views = {}
    for place, cell in cells.items():
        source = Source(problem=problems[place]) if place in problems else layout.sources[place]
        is_embedded = embeds and place in thumbnails and source.format in MEDIA_TYPES
        about = _about(place, cell, source, has_thumbnail=place in thumbnails, is_embedded=is_embedded)
        views[place] = CellView(cell, thumbnails.get(place), cell.file if is_embedded else None, about)
    return views


def _about(place: Place, cell: Cell, source: Source, *, has_thumbnail: bool, is_embedded: bool) -> dict[str, Any]:
    text = CellText("", "") if has_thumbnail else text_in(cell, source)
    return {
        "name": ".".join(str(part + 1) for part in place),
        "label": _shown(cell.label),
        "kind": "Picture" if has_thumbnail else "" if source.problem else source.kind,
        "href": relative(cell.href) if cell.href else "",
        "isShown": bool(source.kind) or source.format in MEDIA_TYPES,
        "embedded": f"data:{MEDIA_TYPES[source.format]};base64," if is_embedded else "",
        "size": f"{source.size[0]} x {source.size[1]} pixels" if source.is_picture else "",
        "mark": text.mark,
        "word": text.word,
        "detail": _shown(text.detail),
        "settings": [[_shown(name), _shown(_text(value))] for name, value in cell.settings.items()],
        "json": json.dumps(dict(cell.settings), indent=2, ensure_ascii=False),
        "flags": flags(cell.settings),
    }


def _size_of(file: Path | None) -> int:
    try:
        return file.stat().st_size if file is not None else 0
    except OSError:
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


def _shown(text: str) -> str:
    return printable(whole(text, LONGEST_TEXT))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
