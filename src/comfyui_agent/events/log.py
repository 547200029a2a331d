"""The metrics log: one JSON object a line, rotated by size, each event once even if a writer is killed."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.domain.events import Event

LARGEST = 64 * 1024 * 1024
KEPT = 5
TAIL = 64 * 1024

if sys.platform != "win32":
    import fcntl


def _take(handle: int) -> bool:
    try:
        if sys.platform != "win32":  # there, only one process per log is possible
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class MetricsLog:
    """A log with one writing process at a time. Its last line tells which event comes next."""

    def __init__(self, path: Path, source: str = "", *, largest: int = LARGEST, kept: int = KEPT) -> None:
        """`source` names the database. Events of another database start at id 1 again."""
        self.path = path
        self._source = source
        self.earlier_sources: Sequence[str] = ()
        """Names of the same database before it was moved: its events go on where they were."""
        self._largest = largest
        self._kept = kept
        self._lock: int | None = None
        self._busy = threading.RLock()
        self.last_id = 0

    def try_open(self) -> bool:
        """Become the writer if no other process is, and cut off a half-written last line."""
        with self._busy:
            if self._lock is None:
                self._lock = self._open()
            return self._lock is not None

    def _open(self) -> int | None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _take(handle):
                os.close(handle)
                return None
            self._mend()
            known = os.read(handle, 200).decode("utf-8", "replace")
            parts = (self.path, _rotated(self.path, 1))
            self.last_id = max(map(_last_id, parts)) if known in ("", self._source, *self.earlier_sources) else 0
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, self._source.encode())
            os.ftruncate(handle, len(self._source.encode()))
        except OSError:
            os.close(handle)
            raise
        return handle

    def write(self, events: Sequence[Event]) -> None:
        """Append the events that are newer than the last line: all of them or none."""
        with self._busy:
            fresh = [event for event in events if event.id > self.last_id]
            if not fresh:
                return
            with self.path.open("ab", buffering=0) as file:
                start = os.fstat(file.fileno()).st_size
                try:
                    _write_lines(file.fileno(), [event.as_json() for event in fresh])
                except OSError:
                    os.ftruncate(file.fileno(), start)
                    raise
                size = os.fstat(file.fileno()).st_size
            self.last_id = fresh[-1].id
            if size >= self._largest:
                self._rotate()

    def close(self) -> None:
        with self._busy:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _rotate(self) -> None:
        for number in range(self._kept, 1, -1):
            if _rotated(self.path, number - 1).exists():
                _rotated(self.path, number - 1).replace(_rotated(self.path, number))
        self.path.replace(_rotated(self.path, 1))

    def _mend(self) -> None:
        """Cut off a half-written last line."""
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - TAIL)
            file.seek(start)
            tail = file.read()
            if tail and not tail.endswith(b"\n"):
                file.truncate(start + tail.rfind(b"\n") + 1)


def append(path: Path, facts: Mapping[str, Any]) -> None:
    """Add one line without an `id`, from any process, beside the writer."""
    with path.open("ab", buffering=0) as file:
        _write_lines(file.fileno(), [facts])


def end_last_line(path: Path) -> None:
    """End a half-written last line, so that added lines stay whole."""
    with path.open("a+b", buffering=0) as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


def rotated(path: Path) -> Iterator[Path]:
    """The existing older parts of a log, newest first."""
    parts = (_rotated(path, number) for number in range(1, KEPT + 1))
    return (part for part in parts if part.exists())


def _rotated(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _write_lines(handle: int, lines: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(handle, data) :]


def _last_id(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        end, rest = file.seek(0, os.SEEK_END), b""
        while end:  # further back while there are only lines without an id
            start = max(0, end - TAIL)
            file.seek(start)
            first, *lines = (file.read(end - start) + rest).split(b"\n")
            for line in reversed(lines if start else [first, *lines]):
                found = _id_of(line)
                if found is not None:
                    return found
            end, rest = start, first
    return 0


def _id_of(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
