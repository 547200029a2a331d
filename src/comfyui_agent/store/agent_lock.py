"""The lock file that an agent holds while it lives. Whoever can take it knows that the agent is gone."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import uuid
from pathlib import Path

SAFE = re.compile(r"[^A-Za-z0-9.-]+")
SUFFIX = ".lock"
PART = "-part"
PAGE = "-page-part"
LONGEST_NOTE = 4096

if os.name == "nt":  # pragma: no cover - kept possible
    import msvcrt

    def _take(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
else:
    import fcntl

    def _take(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class AgentLock:
    """Taken when made, given back by `release` or by the end of the process, however it ends."""

    def __init__(self, folder: Path, *, is_part: bool = False, is_page: bool = False) -> None:
        """One that `is_part` is held by someone who does not work the whole queue off; a page works nothing off."""
        host = SAFE.sub("-", socket.gethostname())[:40] or "host"
        self.worker = f"{host}-{os.getpid()}-{uuid.uuid4().hex[:8]}{PAGE if is_page else PART if is_part else ''}"
        self.folder = folder
        folder.mkdir(0o700, parents=True, exist_ok=True)
        self._path = folder / f"{self.worker}{SUFFIX}"
        self._handle: int | None = self._take_and_name()

    def _take_and_name(self) -> int:
        """Locked first, named then: nobody ever sees the file unlocked while this process lives."""
        unnamed = self._path.with_suffix(".new")
        handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if not _take(handle):
                raise OSError(f"{unnamed} cannot be locked")
            os.write(handle, f"{os.getpid()}\n".encode())
            unnamed.rename(self._path)
        except BaseException:
            os.close(handle)
            unnamed.unlink(missing_ok=True)
            raise
        return handle

    def is_dead(self, worker: str) -> bool:
        """Whether another agent on this machine is gone: its lock can be taken, or is no longer there."""
        if worker == self.worker:
            return False
        return is_dead(self.folder, worker)

    def sweep(self) -> list[str]:
        """Remove the lock files of dead agents; whose they were."""
        dead = [path for path in self.folder.glob(f"*{SUFFIX}") if self.is_dead(path.name.removesuffix(SUFFIX))]
        for path in dead:
            path.unlink(missing_ok=True)
        return [path.name.removesuffix(SUFFIX) for path in dead]

    def release(self) -> None:
        """Give it back, once: by the second time its handle may be another file's."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
                os.close(handle)


class NamedLock:
    """A lock of one name: at most one process has it. It is given back by `release` or by the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether it is ours now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        if not _take(handle):
            os.close(handle)
            return False
        self._handle = handle
        return True

    def note(self, text: str | None = None) -> str:
        """What whoever had it before has noted, or leave a note; only for whoever has it."""
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


def living(folder: Path) -> list[str]:
    """Every agent on this machine that holds its lock."""
    names = [path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}")]
    return [name for name in names if not is_dead(folder, name)]


def working(folder: Path) -> list[str]:
    """Those of them that work something off."""
    return [name for name in living(folder) if not name.endswith(PAGE)]


def is_attended(folder: Path) -> bool:
    """Whether an agent on this machine works the whole queue off."""
    return any(not name.endswith(PART) for name in living(folder))


def is_dead(folder: Path, worker: str) -> bool:
    path = folder / f"{SAFE.sub('-', worker)}{SUFFIX}"
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
