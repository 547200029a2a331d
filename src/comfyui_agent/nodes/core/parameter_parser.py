"""The values of a parameter, as people type them into its node. Runs on Python 3.9.

The syntax is that of `e3 sweep`: `1..10:2`, `1,2,..,10`, `a | b`, `"a, b","c"`, `random:4`, `@file.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.domain.value_types import Kind, ValueType, converted, text_of
from comfyui_agent.domain.values import BadValues, draw_seeds, shortened
from comfyui_agent.domain.values import parse as parse_values

AUTO = "AUTO"
KINDS = {
    AUTO: Kind.ANY,
    "INT": Kind.INT,
    "FLOAT": Kind.FLOAT,
    "STRING": Kind.STRING,
    "BOOLEAN": Kind.BOOLEAN,
    "COMBO": Kind.STRING,
}
"""A choice is a text here. ComfyUI checks for each member whether it exists."""
TYPES = tuple(KINDS)
MOST_MEMBERS = 10_000
LARGEST_FILE = 1_000_000


class NoSuchFile(BadValues, FileNotFoundError):
    """A file with values does not exist."""

    def __str__(self) -> str:
        return str(self.args[0])


def parse(raw: Any, type: str, folder: Path | None = None, kind: Kind | None = None) -> list[Any]:
    """The values of a text, converted to a type: at least one, at most MOST_MEMBERS. ValueError if that fails. A file
    must be in `folder`, if one is given. `kind` is the meaning of AUTO, if it is known."""
    wanted = str(type).strip().upper()
    if wanted not in KINDS:
        raise BadValues(f"{type!r:.60} is no type: use {', '.join(TYPES)}")
    if not isinstance(raw, (str, bool, int, float)):
        raise BadValues("values are not a text: write them into the node, such as 1,2,3 or 1..10")
    tokens = parse_values(
        text_of(raw), read_lines=lambda name: _lines(name, folder), draw=draw_seeds, most=MOST_MEMBERS
    )
    taken = ValueType(kind if kind is not None and wanted == AUTO else KINDS[wanted])
    return [converted(token, taken, f"value {number}") for number, token in enumerate(tokens, start=1)]


def _lines(name: str, folder: Path | None) -> Sequence[str]:
    shown = shortened("@" + name)
    try:
        path = Path(name) if folder is None else (folder / name).resolve()
        if folder is not None and folder.resolve() not in path.parents:
            raise BadValues(f"{shown} is not in ComfyUI's input folder: put the file there")
        if not path.exists():
            raise NoSuchFile(f"{shown} is not there: put the file into ComfyUI's input folder")
        if not path.is_file():
            raise BadValues(f"{shown} is no file with values: put one into ComfyUI's input folder")
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, RuntimeError) as error:
        if isinstance(error, BadValues):
            raise
        raise BadValues(f"{shown} cannot be read: {getattr(error, 'strerror', None) or 'it leads to itself'}") from None
    if len(data) > LARGEST_FILE:
        raise BadValues(f"{shown} is larger than {LARGEST_FILE:,} bytes: make it shorter")
    return data.decode("utf-8-sig").split("\n")
