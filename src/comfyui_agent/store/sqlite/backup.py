"""A backup is one SQLite file with the state of one moment, made while others write to the database."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw

from comfyui_agent.store.copying import TABLES, Tables, copy_tables
from comfyui_agent.store.errors import BackupRefused, DatabaseUnusable
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.driver import READ_PATIENCE, migrate_file, our_words
from comfyui_agent.store.sqlite.tables import SqliteTables

PAGES_AT_ONCE = 2_000
UNNAMED = ".e3part"
NOT_WHOLE = "the copy {} is not whole ({}): check both disks, then try again"

Progress = Callable[[float], None]
"""Is told the share that is done."""


@contextlib.contextmanager
def named_when_whole(file: Path, *, force: bool, besides: Path | None = None) -> Iterator[Path]:
    """A file to write to. When that is done it is synced, then named. BackupRefused if `file` is there or `besides`."""
    with our_words(file):
        _check_free(file, force, besides)
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=UNNAMED, dir=file.parent)
        os.close(handle)
    unnamed = Path(name)
    try:
        yield unnamed
        with our_words(file):
            _sync(unnamed)
            _check_free(file, force, besides)
            unnamed.replace(file)
            with contextlib.suppress(PermissionError):  # Windows syncs no folders
                _sync(file.parent)
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            unnamed.with_name(unnamed.name + end).unlink(missing_ok=True)


def copy_pages(path: Path, unnamed: Path, progress: Progress) -> int:
    """Copy a file page by page, and check it. Returns its rows. Nobody waits; only the write-ahead log grows."""
    with our_words(path):
        source = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, create=False)
    with closing(source), our_words(unnamed), closing(apsw.Connection(str(unnamed))) as target:
        with our_words(path):
            source.execute("BEGIN; SELECT count(*) FROM about").close()  # all steps read this one state
        target.execute("PRAGMA synchronous = off").close()  # the whole file is synced at the end
        with target.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_AT_ONCE)
                progress(1 - backup.remaining / max(1, backup.page_count))
        _make_one_file(target, unnamed)
        counts = _counts(target)
        if counts != _counts(source):
            raise DatabaseUnusable(NOT_WHOLE.format(unnamed, "rows are missing"))
        return sum(counts.values())


def copy_rows(source: Tables, unnamed: Path, progress: Progress) -> int:
    """Copy a snapshot of another kind of database row by row, and compare every table. Returns its rows."""
    steps = [f"{done} {table}" for done in ("copied", "compared") for table in TABLES]
    migrate_file(unnamed)
    with closing(SqliteTables(unnamed)) as target:
        found = copy_tables(source, target, lambda step, _: progress((steps.index(step) + 1) / len(steps)))
    if wrong := [each.name for each in found if not each.is_same]:
        raise DatabaseUnusable(NOT_WHOLE.format(unnamed, f"{', '.join(wrong)} differ"))
    with our_words(unnamed), closing(apsw.Connection(str(unnamed))) as written:
        _make_one_file(written, unnamed)
    progress(1.0)
    return sum(each.rows for each in found)


def _check_free(file: Path, force: bool, besides: Path | None) -> None:
    if file.exists() and (not force or file.is_dir() or (besides is not None and file.samefile(besides))):
        raise BackupRefused(file)


def _make_one_file(database: apsw.Connection, unnamed: Path) -> None:
    """Without a write-ahead log; E3 switches back when it opens it. DatabaseUnusable if its pages are not sound."""
    database.execute("PRAGMA journal_mode = delete").close()
    problem = database.execute("PRAGMA integrity_check(1)").get
    if problem != "ok":
        raise DatabaseUnusable(NOT_WHOLE.format(unnamed, problem))


def _counts(database: apsw.Connection) -> dict[str, int]:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return {
        table: database.execute(f"SELECT count(*) FROM {table}").get  # noqa: S608 - names of the schema
        for table in tables
        if not table.startswith(("job_names", "prompt_trigrams"))  # search indexes, which have no count of their own
    }


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
