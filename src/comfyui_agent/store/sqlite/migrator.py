"""Migrations: numbered files, each applied once in its own transaction."""

from __future__ import annotations

import re
from pathlib import Path

import apsw

from comfyui_agent.store.errors import DatabaseUnusable

MIGRATIONS = {int(file.name[:4]): file for file in sorted((Path(__file__).parent / "migrations").glob("*.sql"))}
NEWEST = max(MIGRATIONS)
OURS = 0x45334341
DOCUMENTED = frozenset(
    """id config_name job_type workflow_id priority status retries_attempted run_count retry_limit start_time end_time
    duration error_trace metadata worker_id lease_expires_at""".split()  # noqa: SIM905 - a list of words
)

ADDED = frozenset(
    column
    for file in MIGRATIONS.values()
    for column in re.findall(r"ALTER TABLE jobs ADD COLUMN (\w+)", file.read_text(encoding="utf-8"))
)


def version_of(database: apsw.Connection) -> int:
    return int(database.pragma("user_version"))


def migrate(database: apsw.Connection) -> tuple[int, int]:
    """Apply missing migrations. Returns the versions before and after. Several processes may do this at once."""
    before = version_of(database)
    while version_of(database) < NEWEST:
        database.execute("BEGIN IMMEDIATE")
        try:
            number = version_of(database) + 1  # another process may have been quicker
            if number <= NEWEST:
                database.execute(MIGRATIONS[number].read_text(encoding="utf-8"))
                database.execute(f"PRAGMA user_version = {number}; PRAGMA application_id = {OURS}")
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:  # a full disk has rolled back already
                database.execute("ROLLBACK")
            raise
    return before, NEWEST


def refuse_strangers(database: apsw.Connection, path: Path) -> None:
    """Raise unless this database is ours, or may become so."""
    database.execute("BEGIN")  # one snapshot: another process may be migrating it
    try:
        version = version_of(database)
        application = database.pragma("application_id")
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        columns = {row[1] for row in database.execute("PRAGMA table_info(jobs)")}
    finally:
        if database.in_transaction:
            database.execute("ROLLBACK")
    if version > NEWEST:
        raise DatabaseUnusable(
            f"the database {path} has version {version}, this E3 knows up to {NEWEST}: install the newer E3 again"
        )
    if application == OURS:
        return
    if version or application or (tables and not columns >= DOCUMENTED):
        raise DatabaseUnusable(f"{path} is a database of another program: name another file")
    taken = sorted(columns & ADDED)
    if taken:
        raise DatabaseUnusable(f"{path} has a column jobs.{taken[0]} of its own, which E3 adds: rename it first")
