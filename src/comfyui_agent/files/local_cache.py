"""Files that can be made or fetched again: a folder of them with a size limit, the least recently used go first."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

UNFINISHED = ".e3part"
PIECE = 1024**2
FORGOTTEN_SECONDS = 3600.0
USED_LATELY_SECONDS = 600.0
KEPT_SHARE = 0.9
"""How full a folder is after it was pruned."""


@dataclass
class LocalCache:
    """Copies of objects. Several processes may share the folder, and anyone may empty it."""

    folder: Path
    most_bytes: int
    _added: int = field(default=-1, init=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False)

    def path_of(self, key: str, name: str) -> Path:
        """Where a copy is, or would be. The key changes with the object."""
        digest = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / digest[:2] / f"{digest}{Path(name).suffix.lower()}"

    def get(self, path: Path, size: int, modified: float, fill: Callable[[Path], object]) -> Path:
        """A copy of that size, made now by `fill` if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size == size:
                os.utime(path, (time.time(), modified))
                return path
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{uuid.uuid4().hex}{UNFINISHED}")
        try:
            fill(unfinished)
            os.utime(unfinished, (time.time(), modified))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        self._count(size)
        return path

    def _count(self, size: int) -> None:
        """Prune at the first file of a process, and whenever a tenth of the limit was added."""
        with self._counting:
            is_due = self._added < 0 or self._added + size > self.most_bytes * (1 - KEPT_SHARE)
            self._added = 0 if is_due else self._added + size
        if is_due:
            prune(self.folder, self.most_bytes, 0, spared_seconds=USED_LATELY_SECONDS)


def digest_of_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def prune(folder: Path, most_bytes: int, most_files: int, spared_seconds: float = 0.0) -> None:
    """Remove the least recently used files if there are too many (0: any number), and leftovers of killed processes."""
    found = sorted(_all_in(folder))
    files, total = len(found), sum(size for _, size, _ in found)
    most_files = most_files or files
    if files <= most_files and total <= most_bytes:
        return
    for used, size, path in found:
        is_enough = files <= KEPT_SHARE * most_files and total <= KEPT_SHARE * most_bytes
        if is_enough or used > time.time() - spared_seconds:
            break
        path.unlink(missing_ok=True)
        files, total = files - 1, total - size


def _all_in(folder: Path) -> list[tuple[float, int, Path]]:
    """List when each file was used, its size and its path. Unfinished files that are old are removed."""
    found = []
    for part in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(NotADirectoryError, FileNotFoundError), os.scandir(part) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if not entry.name.startswith("."):
                        found.append((facts.st_atime, facts.st_size, Path(entry.path)))
                    elif facts.st_mtime < time.time() - FORGOTTEN_SECONDS:
                        Path(entry.path).unlink(missing_ok=True)
    return found
