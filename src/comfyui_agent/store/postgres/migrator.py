"""Migrations of PostgreSQL: numbered files, each applied once in a transaction. Numbers mean the same as in SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from comfyui_agent.store.errors import DatabaseUnusable

MIGRATIONS = {int(file.name[:4]): file for file in sorted((Path(__file__).parent / "migrations").glob("*.sql"))}
NEWEST = max(MIGRATIONS)
COMPATIBLE = 8
"""The oldest version of E3's schema whose agents may work beside this one: they go on during a rolling upgrade."""
LOCK = 0x45334341


def version_of(database: psycopg.Connection[Any]) -> int:
    """The version of a database, 0 if it is empty or of another program."""
    row = database.execute("SELECT to_regclass('about') IS NOT NULL AND to_regclass('jobs') IS NOT NULL").fetchone()
    if row is None or not row[0]:
        return 0
    try:
        found = database.execute("SELECT value FROM about WHERE key = 'version'").fetchone()
    except (psycopg.errors.UndefinedColumn, psycopg.DataError):
        return 0
    return int(found[0]) if found and str(found[0]).isdigit() else 0


def migrate(database: psycopg.Connection[Any], name: str) -> tuple[int, int]:
    """Apply missing migrations. Returns the versions before and after. Several processes may do this at once."""
    refuse_strangers(database, name)
    before = version_of(database)
    while version_of(database) < NEWEST:
        with database.transaction():
            database.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")  # as long as it takes
            database.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            present = version_of(database)  # another process may have been quicker
            number = min((each for each in MIGRATIONS if each > present), default=None)
            if number is not None:
                database.execute(MIGRATIONS[number].read_text(encoding="utf-8").encode())
                for key, value in (("version", number), ("compatible", COMPATIBLE)):
                    database.execute(
                        "INSERT INTO about VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                        [key, str(value)],
                    )
    keep_event_ids_rising(database)
    return before, max(before, NEWEST)


def refuse_strangers(database: psycopg.Connection[Any], name: str) -> None:
    """Raise unless this database is ours, or may become so."""
    row = database.execute("SELECT to_regclass('jobs') IS NOT NULL OR to_regclass('about') IS NOT NULL").fetchone()
    version = version_of(database)  # looked for second: another process may make the tables at this moment
    if version == 0:
        if row is not None and row[0]:
            raise DatabaseUnusable(
                f"{name} has tables jobs or about of another program: name another database, or a schema of its own "
                "(?options=-csearch_path=e3)"
            )
    elif version > NEWEST:
        row = database.execute("SELECT value FROM about WHERE key = 'compatible'").fetchone()
        if row is None or int(row[0]) > NEWEST:
            raise DatabaseUnusable(
                f"the database {name} has version {version}, this E3 knows up to {NEWEST}: install the newer E3 again"
            )


def keep_event_ids_rising(database: psycopg.Connection[Any], last: int = 0) -> None:
    """After a copy or restore into a younger cluster, transactions have lower numbers than those in ids of events.

    `last`: an id that was given, though its event may be gone.
    """
    row = database.execute(
        """SELECT e3_event_shift() + greatest(
            (greatest(max(id), %s) >> 22) - (e3_event_id(pg_current_xact_id()) >> 22) + 1, 0), e3_event_shift()
        FROM events""",
        [last],
    ).fetchone()
    if row is not None and row[0] != row[1]:
        database.execute(
            "CREATE OR REPLACE FUNCTION e3_event_shift() RETURNS bigint LANGUAGE sql IMMUTABLE "
            f"AS 'SELECT {int(row[0])}::bigint'".encode()
        )
