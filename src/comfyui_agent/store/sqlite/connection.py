"""Opening an SQLite file, and its errors as errors of the store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, DatabaseUnusable, StoreError

WAL_KEPT_BYTES = 4 * 1024 * 1024
SHORTEST_PAUSE, FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.004, 0.1
"""E3 polls a lock about as often as SQLite itself. A process that polls much more often takes the lock from the others
again and again, and a shell that waits five seconds never gets it."""


Patience = Callable[[float], bool]
"""Whether to keep waiting for another process, given the seconds so far."""


def connect(
    path: Path,
    *,
    wait: Patience,
    vet: Callable[[apsw.Connection], None] = lambda _: None,
    vfs: str | None = None,
    create: bool = True,
) -> apsw.Connection:
    """A connection whose commits are durable. `wait` decides whether to wait for other writers, `vet` checks first."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    database = apsw.Connection(str(path), flags=flags, vfs=vfs, statementcachesize=200)
    try:
        if database.readonly("main"):
            raise apsw.ReadOnlyError
        database.set_busy_handler(_patience(wait))
        vet(database)
        _switch_to_wal(database, wait)
        database.execute(
            f"PRAGMA synchronous = full; PRAGMA journal_size_limit = {WAL_KEPT_BYTES}; PRAGMA foreign_keys = off;"
            "PRAGMA temp_store = memory; PRAGMA trusted_schema = on"
        )
    except BaseException:
        database.close()
        raise
    return database


def _switch_to_wal(database: apsw.Connection, wait: Patience) -> None:
    """Switch to WAL. SQLite does not call the busy handler here, so this waits for other processes itself."""
    began = time.monotonic()
    while True:
        try:
            if database.execute("PRAGMA journal_mode").get != "wal":
                database.execute("PRAGMA journal_mode = wal")
            return
        except apsw.BusyError:
            if not wait(time.monotonic() - began):
                raise
            _pause(time.monotonic() - began)


def _patience(wait: Patience) -> Callable[[int], bool]:
    began = 0.0

    def is_busy(calls: int) -> bool:
        nonlocal began
        now = time.monotonic()
        began = now if calls == 0 else began
        if not wait(now - began):
            return False
        _pause(now - began)
        return True

    return is_busy


def _pause(waited: float) -> None:
    """Sleep for at most as long as this has waited already."""
    time.sleep(random.uniform(SHORTEST_PAUSE, min(max(FIRST_PAUSE, waited), LONGEST_PAUSE)))


def in_our_words(error: apsw.Error, path: Path) -> StoreError:
    """The error of the store that an SQLite error stands for."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return DatabaseAway(f"the database {path} is locked by another program: close what writes to it")
        case apsw.FullError():
            return DatabaseFull(f"no room for the database {path}: free space on its disk")
        case apsw.ReadOnlyError():
            return DatabaseUnusable(f"the database {path} is read-only: make the file and its folder writable")
        case apsw.NotADBError():
            return DatabaseUnusable(f"{path} is not a database: move it away or name another file")
        case apsw.CorruptError():
            return DatabaseUnusable(f"the database {path} is corrupt: restore a copy, or try `sqlite3 {path} .recover`")
        case apsw.CantOpenError():
            return DatabaseUnusable(f"the database {path} cannot be opened: {_reason_of(path)}")
        case apsw.IOError():
            return DatabaseFull(f"the disk of the database {path} fails ({error}): see to the disk")
        case apsw.PermissionsError() | apsw.AuthError():
            return DatabaseUnusable(f"the database {path} may not be used: make the file and its folder writable")
        case _:
            return DatabaseUnusable(f"the database {path} does not work: {error}")


def log_bytes(path: Path) -> int:
    """The size of the write-ahead log of a database."""
    log = path.with_name(f"{path.name}-wal")
    return log.stat().st_size if log.exists() else 0


def _reason_of(path: Path) -> str:
    if path.is_dir():
        return "it is a folder; name a file"
    if not path.parent.is_dir():
        return f"the folder {path.parent} is not there; make it"
    if not path.exists():
        return f"there is no such file, or {path.parent} is not writable"
    return "make the file and its folder readable and writable"
