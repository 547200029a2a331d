"""A folder of thumbnails. Each is made once, however many clients ask, and the folder has a size limit."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from comfyui_agent.access.limits import Turns
from comfyui_agent.files.local_cache import prune
from comfyui_agent.pictures.thumbnails import NoThumbnail, make_thumbnail
from comfyui_agent.pools import FILES, THUMBNAILS

log = logging.getLogger(__name__)

MOST_BYTES = 2 * 1024**3
MOST_FILES = 200_000
PRUNED_EVERY = 1000
ACCESS_IS_NOTED_AFTER = 3600.0
MOST_HOPELESS = 1000
SUFFIX = ".webp"


class ThumbnailCache:
    """Thumbnails by source, version and width. Several processes may share the folder, and anyone may empty it."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._turns = Turns(at_once=1)
        self._hopeless: dict[Path, str] = {}
        self._made = 0

    async def get(self, source: Path, version: str, width: int, fetch: Callable[[], Path] | None = None) -> Path:
        """Return the thumbnail of a picture, made now if it is missing. Raises NoThumbnail, or OSError.

        `fetch` brings the picture to this machine if that is needed; else it is at `source`.
        """
        target = self._target(source, version, width)
        async with self._turns.turn(str(target)):  # all who ask for the same one wait for the first
            if target in self._hopeless:
                raise NoThumbnail(self._hopeless[target])
            if not await FILES.run(_use, target):
                await self._make(fetch or (lambda: source), target, width)
        return target

    async def find(self, source: Path, version: str, width: int) -> Path | None:
        """The thumbnail of a picture if it was made before."""
        target = self._target(source, version, width)
        return target if await FILES.run(_use, target) else None

    async def _make(self, source: Callable[[], Path], target: Path, width: int) -> None:
        try:
            await THUMBNAILS.run(_make_once, source, target, width)
        except NoThumbnail as error:
            if len(self._hopeless) >= MOST_HOPELESS:
                self._hopeless.clear()
            self._hopeless[target] = str(error)
            raise
        if self._made % PRUNED_EVERY == 0:
            threading.Thread(target=self.prune, name="prune thumbnails", daemon=True).start()
        self._made += 1

    def prune(self) -> None:
        """Remove the least recently used thumbnails if there are too many, and leftovers of killed processes."""
        try:
            prune(self.folder, self._most_bytes, self._most_files)
        except OSError as error:
            log.warning("old thumbnails could not be removed: %s", error)

    def _target(self, source: Path, version: str, width: int) -> Path:
        key = b"\0".join([os.fsencode(source), version.encode(), str(width).encode()])
        digest = hashlib.sha256(key).hexdigest()
        return self.folder / digest[:2] / f"{digest}{SUFFIX}"


def _use(path: Path) -> bool:
    """Whether a thumbnail is there and complete. If so, its access time is updated.

    Thumbnails are not synced to disk when they are made, so that a power loss may cut one short.
    """
    try:
        with path.open("rb") as file:
            facts, head = os.fstat(file.fileno()), file.read(12)
    except OSError:
        return False
    if len(head) < 12 or head[:4] != b"RIFF" or struct.unpack_from("<I", head, 4)[0] + 8 != facts.st_size:
        return False
    if facts.st_atime < time.time() - ACCESS_IS_NOTED_AFTER:
        with contextlib.suppress(OSError):
            os.utime(path, (time.time(), facts.st_mtime))
    return True


def _make_once(source: Callable[[], Path], target: Path, width: int) -> None:
    if not _use(target):  # another process may have made it meanwhile
        make_thumbnail(source(), target, width)
