"""Where files lie, and the rules for their names. Nothing here looks at a disk."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

Roots = Mapping[str, Path]
"""The absolute folder of each kind of files. A server that keeps files elsewhere makes these up."""
KINDS = ("output", "input", "temp")


@dataclass(frozen=True)
class FilePlace:
    """A place below the folder of its kind, checked to be there. The name of an upload may begin with folders."""

    kind: str
    subfolder: str
    name: str

    @property
    def path(self) -> str:
        """The one way to write this place, relative to the folder of its kind."""
        return posixpath.normpath(posixpath.join(self.subfolder, self.name))


@dataclass(frozen=True)
class Upload:
    """A file that a client sends. It is not written if the place has the bytes that were sent."""

    place: FilePlace
    sent: bytes
    overwrite: bool
    content: Callable[[], Awaitable[bytes | None]] | None = None
    """Makes other bytes to write, or none."""


def split_kind(filename: str) -> tuple[str, str | None]:
    """Split `name [input]` into the name and the kind of its folder."""
    for kind in KINDS:
        if filename.endswith(f"[{kind}]"):
            return filename[: -len(kind) - 3], kind
    return filename, None


def place_to_read(roots: Roots, filename: str, kind: str, subfolder: str | None) -> FilePlace | int:
    """The place that a client names, or the status code that refuses it."""
    filename, named = split_kind(filename)
    if not filename or filename.startswith("/") or ".." in filename:
        return 400
    kind = named or kind
    if kind not in roots:
        return 400
    folder = Path(os.path.abspath(roots[kind] / (subfolder or "")))
    if not folder.is_relative_to(roots[kind]):
        return 403
    return FilePlace(kind, _relative(folder, roots[kind]), Path(filename).name)


def place_to_write(roots: Roots, filename: str, kind: str, subfolder: str) -> FilePlace | None:
    """The place for an upload; None if it is outside its folder."""
    folder = Path(os.path.normpath(roots[kind] / subfolder))
    if not Path(os.path.abspath(folder / filename)).is_relative_to(roots[kind]):
        return None
    return FilePlace(kind, _relative(folder, roots[kind]), filename)


def _relative(folder: Path, root: Path) -> str:
    return "" if folder == root else Path(os.path.relpath(folder, root)).as_posix()


def names_to_try(wanted: str) -> Iterator[str]:
    """The names for an upload, until one is free or has a file with the same bytes."""
    stem, extension = os.path.splitext(wanted)
    yield wanted
    yield from (f"{stem} ({number}){extension}" for number in count(1))
