"""Thumbnails in a folder: each is made once, however many ask for it, and the folder does not grow without end."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.pictures.thumbnails import UNNAMED, NoThumbnail, make_thumbnail
from comfyui_agent.web.threads import FILES

log = logging.getLogger(__name__)

AT_ONCE = 2
MOST_BYTES = 2 * 1024**3
MOST_FILES = 200_000
KEPT_SHARE = 0.9
"""How full the folder is left when it was too full, so that it is not looked through again at once."""
PRUNED_EVERY = 1000
ACCESS_IS_NOTED_AFTER = 3600.0
FORGOTTEN_SECONDS = 3600.0
MOST_HOPELESS = 1000
SUFFIX = ".webp"


@dataclass
class _Work:
    """A thumbnail that is being made, or waits for its turn, and how many wait for it."""

    task: asyncio.Task[None]
    waiting: int = 0
    has_begun: bool = False


class ThumbnailCache:
    """Thumbnails by source, version and width: another version of a picture gets another thumbnail.

    Several processes may share the folder, and anyone may empty it.
    """

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._works: dict[Path, _Work] = {}
        self._hopeless: dict[Path, str] = {}
        self._made = 0
        self._pruning = threading.Lock()

    async def get(self, source: Path, version: str, width: int) -> Path:
        """The thumbnail of a picture, made now if it is not there. NoThumbnail, or OSError where it cannot be kept.

        What nobody waits for any more when its turn comes is not made.
        """
        target = self._target(source, version, width)
        if target in self._hopeless:
            raise NoThumbnail(self._hopeless[target])
        if not await FILES.run(_use, target):
            await self._wait_for(self._works.get(target) or self._begin(source, target, width), target)
        return target

    def prune(self) -> None:
        """Remove what was not asked for the longest, if there is too much, and what killed processes left."""
        if not self._pruning.acquire(blocking=False):
            return
        try:
            found = sorted(_all_in(self.folder))
            files, size = len(found), sum(each.size for each in found)
            if files <= self._most_files and size <= self._most_bytes:
                return
            for each in found:
                if files <= KEPT_SHARE * self._most_files and size <= KEPT_SHARE * self._most_bytes:
                    break
                each.path.unlink(missing_ok=True)
                files, size = files - 1, size - each.size
        except OSError as error:
            log.warning("old thumbnails could not be removed: %s", error)
        finally:
            self._pruning.release()

    def _target(self, source: Path, version: str, width: int) -> Path:
        key = b"\0".join([os.fsencode(source), version.encode(), str(width).encode()])
        digest = hashlib.sha256(key).hexdigest()
        return self.folder / digest[:2] / f"{digest}{SUFFIX}"

    def _begin(self, source: Path, target: Path, width: int) -> _Work:
        work = _Work(asyncio.create_task(self._make(source, target, width)))
        self._works[target] = work
        work.task.add_done_callback(lambda task: self._ended(target, work, task))
        return work

    async def _wait_for(self, work: _Work, target: Path) -> None:
        work.waiting += 1
        try:
            await asyncio.shield(work.task)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.has_begun:
                self._forget(target, work)
                work.task.cancel()

    async def _make(self, source: Path, target: Path, width: int) -> None:
        async with self._slots:
            self._works[target].has_begun = True
            try:
                await _in_thread(lambda: _make_once(source, target, width))
            except NoThumbnail as error:
                if len(self._hopeless) >= MOST_HOPELESS:
                    self._hopeless.clear()
                self._hopeless[target] = str(error)
                raise
        if self._made % PRUNED_EVERY == 0:
            threading.Thread(target=self.prune, name="prune thumbnails", daemon=True).start()
        self._made += 1

    def _ended(self, target: Path, work: _Work, task: asyncio.Task[None]) -> None:
        self._forget(target, work)
        if not task.cancelled():
            task.exception()  # those who waited have it; where nobody did, nobody misses it

    def _forget(self, target: Path, work: _Work) -> None:
        if self._works.get(target) is work:
            del self._works[target]


@dataclass(frozen=True, order=True)
class _Kept:
    accessed_at: float
    size: int
    path: Path


def _all_in(folder: Path) -> list[_Kept]:
    """Every thumbnail. What was begun long ago and never named goes."""
    found = []
    for part in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(NotADirectoryError, FileNotFoundError), os.scandir(part) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(SUFFIX):
                        found.append(_Kept(facts.st_atime, facts.st_size, Path(entry.path)))
                    elif entry.name.endswith(UNNAMED) and facts.st_mtime < time.time() - FORGOTTEN_SECONDS:
                        Path(entry.path).unlink(missing_ok=True)
    return found


def _use(path: Path) -> bool:
    """Whether a thumbnail is there and whole; if so, it is noted that someone wanted it.

    It is not brought to disk for good when it is made: one that a power loss cut short is seen here, and made anew.
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


def _make_once(source: Path, target: Path, width: int) -> None:
    if not _use(target):  # made by another process, or just before this one's turn
        make_thumbnail(source, target, width)


async def _in_thread(work: Callable[[], object]) -> None:
    """Do something in a thread that the end of the process does not wait for: a large picture takes seconds."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end(error: BaseException | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as caught:  # noqa: BLE001 - whoever waits gets it
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(end, error)

    threading.Thread(target=run, name="thumbnail", daemon=True).start()
    await done
