"""Opening a database by URL or path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType

from comfyui_agent.store.copying import Tables
from comfyui_agent.store.errors import DatabaseUnusable
from comfyui_agent.store.records import Compacted
from comfyui_agent.store.sqlite.backup import copy_pages, copy_rows, named_when_whole
from comfyui_agent.store.sqlite.driver import (
    SqliteDriver,
    compact_file,
    find_or_make_room,
    migrate_file,
    version_of_file,
)
from comfyui_agent.store.sqlite.migrator import NEWEST
from comfyui_agent.store.sqlite.tables import SqliteTables
from comfyui_agent.store.store import Store

SQLITE, POSTGRES = "sqlite:///", ("postgresql://", "postgres://")


def open_store(
    place: str | Path, *, create: bool = True, is_patient: bool = False, give_up: Callable[[], bool] = lambda: False
) -> Store:
    """Open the database at a path or a URL. While it is locked or away, wait until `give_up` returns True.

    A PostgreSQL that does not answer is waited for so long only if `is_patient`, else for some seconds.
    """
    if is_postgres(place):
        return Store(_postgres().PostgresDriver.open(str(place), is_patient=is_patient, give_up=give_up))
    return Store(SqliteDriver.open(_path(place), create=create, give_up=give_up))


def migrate_store(place: str | Path) -> tuple[int, int]:
    """Make a database or bring it up to date. Returns its version before and after."""
    return _postgres().migrate_database(str(place)) if is_postgres(place) else migrate_file(_path(place))


def compact_store(place: str | Path) -> Compacted:
    """Give back the free space of a database that nobody uses."""
    return _postgres().compact_database(str(place)) if is_postgres(place) else compact_file(_path(place))


def backup_store(
    place: str | Path, file: Path, *, force: bool = False, progress: Callable[[float], None] = lambda _: None
) -> int:
    """Write a consistent copy to an SQLite file, while agents work. Returns its rows. BackupRefused if it is there."""
    if is_postgres(place):
        with named_when_whole(file, force=force) as unnamed, closing(open_tables(place, is_snapshot=True)) as source:
            return copy_rows(source, unnamed, progress)
    path = _path(place)
    find_or_make_room(path, create=False)
    with named_when_whole(file, force=force, besides=path) as unnamed:
        return copy_pages(path, unnamed, progress)


def open_tables(place: str | Path, *, is_snapshot: bool = False) -> Tables:
    """A database that is there and up to date, for `copy_tables`. `is_snapshot`: as it is now, for PostgreSQL."""
    if is_postgres(place):
        tables: Tables = _postgres("tables").PostgresTables(str(place), is_snapshot=is_snapshot)
        return tables
    return SqliteTables(_path(place))


def version_of(place: str | Path) -> tuple[int, int]:
    """The version of a database, and the newest version that this E3 knows. Nothing is changed."""
    return (
        _postgres().version_of_database(str(place)) if is_postgres(place) else version_of_file(_path(place))
    ), NEWEST


def is_postgres(place: str | Path) -> bool:
    return str(place).startswith(POSTGRES)


def _postgres(module: str = "driver") -> ModuleType:
    """A module for PostgreSQL. What it needs is installed by those who use it."""
    try:
        return import_module(f"comfyui_agent.store.postgres.{module}")
    except ImportError as error:
        raise DatabaseUnusable(
            f"PostgreSQL needs the package {error.name}: pip install 'e3-comfyui-agent[postgres]'"
        ) from None


def _path(place: str | Path) -> Path:
    text = str(place)
    if text.startswith(SQLITE):
        return Path(text.removeprefix(SQLITE))
    if "://" in text:
        scheme = text.partition("://")[0]
        raise DatabaseUnusable(
            f"{scheme}:// is no kind of database that E3 knows: sqlite:///path or postgresql://host/name"
        )
    return Path(text)
