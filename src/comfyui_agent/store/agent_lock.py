"""The lock file that a process holds while it lives. If another process can take it, the first one is gone."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import sys
import uuid
from pathlib import Path

SAFE = re.compile(r"[^A-Za-z0-9.-]+")
SUFFIX = ".lock"
PART = "-part"
PAGE = "-page-part"
LONGEST_NOTE = 4096
BOOT, MOUNTS = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/mnt"

if sys.platform == "win32":  # pragma: no cover - kept possible
    import msvcrt
else:
    import fcntl


def _take(handle: int) -> bool:
    try:
        if sys.platform == "win32":  # pragma: no cover - kept possible
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class AgentLock:
    """Taken when made, given back by `release` or by the end of the process, however it ends."""

    def __init__(self, folder: Path, *, is_part: bool = False, is_page: bool = False) -> None:
        """`is_part`: the process does not work off the whole queue. `is_page`: it works off nothing."""
        self.host = this_host()
        name = SAFE.sub("-", socket.gethostname())[:40] or "host"
        self.worker = f"{name}-{os.getpid()}-{uuid.uuid4().hex[:8]}{PAGE if is_page else PART if is_part else ''}"
        self.folder = folder.absolute()
        self.folder.mkdir(0o700, parents=True, exist_ok=True)
        self.path = self.folder / f"{self.worker}{SUFFIX}"
        self._handle: int | None = self._take_and_name()

    def _take_and_name(self) -> int:
        """Lock the file before it gets its name: nobody sees it unlocked while this process lives."""
        unnamed = self.path.with_suffix(".new")
        handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if not _take(handle):
                raise OSError(f"{unnamed} cannot be locked")
            os.write(handle, f"{os.getpid()}\n".encode())
            unnamed.rename(self.path)
        except BaseException:
            os.close(handle)
            unnamed.unlink(missing_ok=True)
            raise
        return handle

    def beat(self) -> None:
        """Set the file's time to now. A probe sees by it that the process not only lives but also works."""
        with contextlib.suppress(OSError):
            os.utime(self.path)

    def dead(self) -> list[str]:
        """Workers that left their lock files in this folder."""
        return [path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}") if is_free(path)]

    def sweep(self) -> list[str]:
        """Remove the lock files of dead processes. Returns their workers."""
        dead = self.dead()
        for worker in dead:
            (self.folder / f"{worker}{SUFFIX}").unlink(missing_ok=True)
        return dead

    def release(self) -> None:
        """Give the lock back. Only the first call does something: later the handle may be another file's."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
                os.close(handle)


class NamedLock:
    """A lock of one name, held by at most one process until `release` or the end of that process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Take the lock if it is free. Returns whether it is ours now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _take(handle):
            os.close(handle)
            return False
        self._handle = handle
        return True

    def note(self, text: str | None = None) -> str:
        """Read the note of the last holder, or leave one. Only for the process that holds the lock."""
        assert self._handle is not None
        os.lseek(self._handle, 0, os.SEEK_SET)
        if text is None:
            return os.read(self._handle, LONGEST_NOTE).decode("utf-8", "replace").strip()
        os.ftruncate(self._handle, 0)
        os.write(self._handle, text.encode("utf-8", "replace"))
        return text

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@functools.cache
def this_host() -> str:
    """The name by which this machine or container is known in the database.

    Its processes see each other's lock files. Two machines, or two containers, of the same host name differ in the
    second part; so does a machine after a restart.
    """
    marks = []
    with contextlib.suppress(OSError):  # there is no such thing but on Linux
        marks = [BOOT.read_text(), os.readlink(MOUNTS)]  # noqa: PTH115 - it leads nowhere
    return "-".join(
        [socket.gethostname(), *([hashlib.sha256("".join(marks).encode()).hexdigest()[:8]] if marks else [])]
    )


def living(folder: Path) -> list[str]:
    """Workers whose locks in this folder are held."""
    return [path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}") if not is_free(path)]


def working(folder: Path) -> list[str]:
    """Living workers that run jobs: all but pages."""
    return [name for name in living(folder) if not name.endswith(PAGE)]


def is_attended_here(folder: Path) -> bool:
    """Whether a living worker of this workspace works off the whole queue."""
    return any(not name.endswith(PART) for name in living(folder))


def is_free(path: Path) -> bool:
    """Whether nobody holds a lock file: it can be taken, or is gone."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return _take(handle)
    finally:
        os.close(handle)
