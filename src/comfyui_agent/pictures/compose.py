"""Composing a grid in a child process that reads a Spec from stdin. If it fails, it prints one line to stderr, exits
with 1, and leaves the files of an earlier run as they were."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter

from comfyui_agent.domain.grid_layout import picture_paths
from comfyui_agent.domain.texts import printable, whole
from comfyui_agent.pictures.grid import Grid, Place, lay_out
from comfyui_agent.pictures.grid_drawing import draw
from comfyui_agent.pictures.grid_page import write_page

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"format": "PNG", "compress_level": 3},
    "jpeg": {"format": "JPEG", "quality": 90},
}
LONGEST_MESSAGE = 500
MARK = ".e3part"
FORGOTTEN_SECONDS = 3600


@dataclass(frozen=True)
class Spec:
    grid: Grid
    format: str
    picture: Path
    page: Path

    @property
    def pictures(self) -> list[Path]:
        return picture_paths(self.picture, len(self.grid.pages))

    @property
    def paths(self) -> list[Path]:
        return [*self.pictures, self.page]

    def as_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, text: str | bytes) -> Spec:
        return TypeAdapter(cls).validate_python(json.loads(text))  # not from JSON: names may hold half characters


def compose(spec: Spec) -> None:
    """Make the pictures and the page, all of them or none. ValueError if they would replace a file they show."""
    sources = {cell.file for page in spec.grid.pages for cell in page.cells}
    for path in set(spec.paths) & sources:
        raise ValueError(f"{path} is one of the files to show: the grid would overwrite it")
    layout = lay_out(spec.grid)
    thumbnails: dict[Place, bytes] = {}
    problems: dict[Place, str] = {}

    def write_picture(number: int, file: IO[bytes]) -> None:
        drawn = draw(layout, number)
        drawn.picture.save(file, **FORMATS[spec.format])
        thumbnails.update(drawn.thumbnails)
        problems.update(drawn.problems)

    with _replacing() as write:
        for number, path in enumerate(spec.pictures):
            write(path, partial(write_picture, number))
        write(spec.page, lambda file: write_page(file, layout, thumbnails, problems))


@contextmanager
def _replacing() -> Iterator[Callable[[Path, Callable[[IO[bytes]], None]], None]]:
    """Write files beside those they replace. They get their names at the end, when all of them are on disk."""
    written: list[tuple[Path, Path]] = []

    def write(path: Path, write_to: Callable[[IO[bytes]], None]) -> None:
        _remove_forgotten(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex}{MARK}")
        written.append((temporary, path))
        with temporary.open("xb") as file:
            write_to(file)
            file.flush()
            os.fsync(file.fileno())

    try:
        yield write
        for temporary, path in written:
            temporary.replace(path)
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)


def _remove_forgotten(path: Path) -> None:
    """Remove the files of processes that were killed while they wrote the same file."""
    name = re.compile(re.escape(f".{path.name}.") + "([0-9]{1,9})-[0-9a-f]{32}" + re.escape(MARK))
    for other in path.parent.iterdir():
        if known := name.fullmatch(other.name):
            with suppress(OSError):
                if not _is_alive(int(known[1])) or other.stat().st_mtime < time.time() - FORGOTTEN_SECONDS:
                    other.unlink()


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def main(given: IO[bytes]) -> int:
    try:
        compose(Spec.read(given.read()))
    except Exception as error:  # noqa: BLE001 - the parent needs one line for any error
        message = " ".join(f"{error or type(error).__name__}".split())
        sys.stderr.write(printable(whole(message, LONGEST_MESSAGE)).encode("ascii", "backslashreplace").decode() + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer))
