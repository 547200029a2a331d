"""Files in a folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeVar

from comfyui_agent.files.port import BadLocation, NoPlainFile, Peek

P = TypeVar("P", bound=PurePath)

MOST_KEPT_ASIDE = 10_000
OPENING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Folder:
    """Files are renamed into place, by whoever proved just before that the name is theirs."""

    root: Path
    is_remote = False

    def check(self) -> None:
        if not self.root.is_dir():
            raise BadLocation(f"there is no folder {self.root}: make it, or mount it")
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise BadLocation(f"the folder {self.root} cannot be used: give yourself the right to write there")

    def staging(self, folder: Path) -> Path:
        return folder

    def is_fenced(self, size: int) -> bool:  # noqa: ARG002 - an object store needs it
        return False

    def publish(self, source: Path, name: str, *, replaces: bool = True) -> None:  # noqa: ARG002
        """Rename a file of the same disk, atomically. This waits for the disk."""
        rename(source, self.root / name)

    def keep_aside(self, name: str) -> str:
        return keep_aside(self.root / name).name

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.root / name)

    def missing(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not (self.root / name).is_file()]

    def peek(self, name: str, length: int, version: str = "") -> Peek:  # noqa: ARG002
        """Look at a plain file. It never blocks on a pipe or follows a link."""
        path = self.root / name
        facts, head = path.lstat(), b""
        if stat.S_ISREG(facts.st_mode):
            handle = os.open(path, OPENING)
            try:
                facts, head = os.fstat(handle), os.read(handle, length)
            finally:
                os.close(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise NoPlainFile
        return Peek(head, f"{facts.st_mtime_ns:x}-{facts.st_size:x}")

    def local(self, name: str) -> Path:
        return self.root / name

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)


def rename(source: Path, target: Path) -> None:
    """Give a file its name, on disk before this returns."""
    source.replace(target)
    sync_folder(target.parent)


def keep_aside(path: Path) -> Path:
    """Give a file that is no job's another name: nothing of anyone is overwritten."""
    return path.rename(free_name(path, lambda kept: kept.exists()))


def free_name(path: P, is_taken: Callable[[P], bool]) -> P:
    """A name for a file that is in the way of a result."""
    for number in range(1, MOST_KEPT_ASIDE):
        kept = path.with_name(f"{path.stem}.kept-{number}{path.suffix}")
        if not is_taken(kept):
            return kept
    raise FileExistsError(f"{path} is in the way, and so are {MOST_KEPT_ASIDE} copies of it")


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
