"""Where results and input pictures are kept: a folder, or a bucket of an object store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePath

ADDRESS = re.compile(r"(s3|gs|az)://[A-Za-z0-9][A-Za-z0-9._-]{1,62}(/[^/?#\s]+)*/?")
EXAMPLE = "s3://bucket/prefix (or gs://, az://)"


@dataclass(frozen=True)
class Location:
    """Names are relative to `folder`. With a `url` nothing lies in it: the objects are at `url`/name."""

    folder: Path
    url: str = ""
    memory: Path = Path()
    """A local folder for copies of objects, and for files on their way to the store."""
    memory_bytes: int = 0

    @property
    def staged(self) -> Path:
        return self.memory / "staged"

    @property
    def copies(self) -> Path:
        return self.memory / "objects"

    def has(self, name: str) -> bool:
        """Whether a recorded name is kept here. Others are absolute paths of files on this machine."""
        return not PurePath(name).is_absolute()

    def address(self, name: str) -> str:
        """Where a file is, for people."""
        return f"{self.url}/{name}" if self.url and self.has(name) else str(self.folder / name)


def is_url(text: str) -> bool:
    return "://" in text


def object_url(text: str) -> str:
    """The address of a bucket and prefix, without a slash at its end. ValueError says what is wrong, and no secrets."""
    if "@" in text:
        raise ValueError(f"credentials do not belong there: write {EXAMPLE}, and set them as environment variables")
    if not ADDRESS.fullmatch(text) or {".", ".."} & set(text.split("/")):
        raise ValueError(f"no address of a bucket: write {EXAMPLE}")
    return text.rstrip("/")
