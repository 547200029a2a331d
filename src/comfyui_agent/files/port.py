"""What the engine and the interfaces need of the place where files are kept. All calls block: use a thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class BadLocation(Exception):
    """Files cannot be kept where the settings say; the message says why and what to do."""


class FilesAway(OSError):
    """The object store does not do what it is asked for now. Waiting may mend it; `strerror` has no secrets."""


class NoPlainFile(OSError):
    """A pipe, a folder, a link or the like."""


@dataclass(frozen=True)
class Peek:
    """The first bytes of a file, and a text that changes with the file."""

    head: bytes
    version: str


class Files(Protocol):
    """Names are those that the database has: relative, with forward slashes."""

    is_remote: bool

    def check(self) -> None:
        """BadLocation if files can never be kept here, FilesAway if not now."""

    def staging(self, folder: Path) -> Path:
        """The local folder for files on their way to a folder of results."""

    def is_fenced(self, size: int) -> bool:
        """Whether only a name that no other lease uses keeps a file from being replaced by an old one."""

    def publish(self, source: Path, name: str, *, replaces: bool) -> None:
        """Keep a file whole or not at all. FileExistsError for other bytes there, unless it `replaces` them."""

    def keep_aside(self, name: str) -> str:
        """Give a file another name; that name. Nothing of anyone is overwritten."""

    def exists(self, name: str) -> bool: ...

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those that are not there."""

    def peek(self, name: str, length: int, version: str = "") -> Peek:
        """Look at a file. What is known for the same `version` may be a minute old. FileNotFoundError, FilesAway."""

    def local(self, name: str) -> Path:
        """The file on this machine, fetched if need be. FileNotFoundError, FilesAway."""

    def remove(self, name: str) -> None:
        """Remove a file. It does not matter if it is gone."""
