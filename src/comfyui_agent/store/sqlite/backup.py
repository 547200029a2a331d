"""A copy of an SQLite file as it was at one moment, made while others write to it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import apsw

from comfyui_agent.store.errors import BackupRefused, DatabaseUnusable
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.driver import READ_PATIENCE, find_or_make_room, our_words

PAGES_AT_ONCE = 2_000
UNNAMED = ".e3part"


def backup_file(path: Path, file: Path, *, force: bool, progress: Callable[[float], None]) -> int:
    """Copy a database, on disk and checked before it gets its name. Returns its rows. BackupRefused if `file` is there.

    `progress` is told the share that is done. Nobody waits meanwhile; only the write-ahead log grows.
    """
    find_or_make_room(path, create=False)
    with our_words(file):
        _check_free(path, file, force)
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=UNNAMED, dir=file.parent)
        os.close(handle)
    unnamed = Path(name)
    try:
        rows = _copy(path, unnamed, progress)
        with our_words(file):
            _sync(unnamed)
            _check_free(path, file, force)
            unnamed.replace(file)
            with contextlib.suppress(PermissionError):  # Windows syncs no folders
                _sync(file.parent)
        return rows
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            unnamed.with_name(unnamed.name + end).unlink(missing_ok=True)


def _check_free(path: Path, file: Path, force: bool) -> None:
    if file.exists() and (not force or file.is_dir() or file.samefile(path)):
        raise BackupRefused(file)


def _copy(path: Path, unnamed: Path, progress: Callable[[float], None]) -> int:
    with our_words(path):
        source = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, create=False)
    try:
        with our_words(path):
            source.execute("BEGIN; SELECT count(*) FROM about").close()  # all steps read this one state
        with our_words(unnamed):
            target = apsw.Connection(str(unnamed))
            try:
                target.execute("PRAGMA synchronous = off").close()  # the whole file is synced at the end
                with target.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(PAGES_AT_ONCE)
                        progress(1 - backup.remaining / max(1, backup.page_count))
                target.execute("PRAGMA journal_mode = delete").close()  # one file; E3 switches back when it opens it
                return _check(source, target, unnamed)
            finally:
                target.close()
    finally:
        source.close()


def _check(source: apsw.Connection, target: apsw.Connection, unnamed: Path) -> int:
    problem = target.execute("PRAGMA integrity_check(1)").get
    counts = _counts(target)
    if problem != "ok" or counts != _counts(source):
        raise DatabaseUnusable(f"the copy {unnamed} is not whole ({problem}): check both disks, then try again")
    return sum(counts.values())


def _counts(database: apsw.Connection) -> dict[str, int]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        table: database.execute(f"SELECT count(*) FROM {table}").get  # noqa: S608 - names of the schema
        for table in tables
        if not table.startswith("job_names")  # the search index, which has no count of its own
    }


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
