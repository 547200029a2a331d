"""The files that ComfyUI's page keeps at a server: settings, workflows and the like. In memory, and not too many."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

MOST_ENTRIES = 10_000
MOST_BYTES = 64 * 1024 * 1024


class TooManyUserFiles(Exception):
    """The simulator keeps no more files for the page."""


@dataclass(frozen=True)
class UserFile:
    content: bytes
    modified: float = field(default_factory=time.time)
    created: float = field(default_factory=time.time)


def user_path(name: str) -> str | None:
    """The path for a name as a client writes it, empty for the user's folder; None if it leads out of there."""
    name = unquote(name)
    path = posixpath.normpath(name)
    if name.startswith("/") or path == ".." or path.startswith("../"):
        return None
    return "" if path == "." else path


class UserFiles:
    """Files by path, and the folders that there are. A folder stays when its last file goes."""

    def __init__(self) -> None:
        self.files: dict[str, UserFile] = {}
        self.folders: set[str] = set()

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def make_folder(self, path: str) -> None:
        """Make a folder and those around it, as long as there is room."""
        for folder in (*_ancestors(path), path):
            if folder in self.files or len(self.folders) >= MOST_ENTRIES:
                return
            self.folders.add(folder)

    def write(self, path: str, content: bytes) -> None:
        """OSError if that is no place for a file."""
        self._check_place(path)
        others = [len(file.content) for each, file in self.files.items() if each != path]
        if len(others) >= MOST_ENTRIES or sum(others) + len(content) > MOST_BYTES:
            raise TooManyUserFiles
        self.make_folder(posixpath.dirname(path))
        self.files[path] = UserFile(content)

    def move(self, source: str, target: str) -> None:
        """Move a file; into the target if that is a folder."""
        if target in self.folders:
            target = posixpath.join(target, posixpath.basename(source))
        self._check_place(target)
        self.files[target] = replace(self.files.pop(source), created=time.time())

    def below(self, folder: str) -> Iterator[tuple[str, UserFile | None]]:
        """Everything in a folder and in those inside: paths, and None for folders."""
        prefix = f"{folder}/" if folder else ""
        yield from ((path, None) for path in self.folders if path.startswith(prefix) and path)
        yield from ((path, file) for path, file in self.files.items() if path.startswith(prefix))

    def _check_place(self, path: str) -> None:
        if path in self.folders or any(each in self.files for each in _ancestors(path)):
            raise OSError(f"{path} cannot be a file")


def _ancestors(path: str) -> list[str]:
    """The folders around a path, the user's own first."""
    parts = path.split("/")[:-1]
    return [""] * bool(path) + ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
