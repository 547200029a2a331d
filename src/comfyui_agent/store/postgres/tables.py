"""A PostgreSQL database as tables, for copies and backups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from psycopg import errors

from comfyui_agent.domain.texts import whole
from comfyui_agent.store.copying import TABLES, Tables, Values, plain, quoted
from comfyui_agent.store.errors import CopyRefused
from comfyui_agent.store.postgres.connection import SNAPSHOT, Place, identity_of
from comfyui_agent.store.postgres.migrator import keep_event_ids_rising
from comfyui_agent.store.postgres.session import NUL, VALUE, PostgresSession

UNHURRIED = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0"
FITTING: dict[str, tuple[type | tuple[type, ...], str]] = {
    "bigint": (int, "a whole number"),
    "double precision": ((int, float), "a number"),
    "e3_time": (datetime, "a time such as 2025-08-09 12:30:01.250"),
    "text": (str, "a text without NUL"),
}
IDENTITIES = {"jobs": "id", "attempts": "id", "tokens": "id", "webhooks": "id", "deliveries": "id", "batches": "place"}
SET_SEQUENCE = "SELECT setval('{table}_{column}_seq', greatest(max({column}), %s) + 1, false) FROM {table}"
REFUSED = (psycopg.IntegrityError, psycopg.DataError, errors.ProgramLimitExceeded)
LONGEST_SHOWN = 60
CORRECT_IT = "correct it in FROM, then run the same command again"


class PostgresTables(Tables):
    """With `is_snapshot`, all reads see the state of one moment, whoever writes meanwhile."""

    def __init__(self, url: str, *, is_snapshot: bool = False) -> None:
        self._place = Place(url)
        self._database = self._place.connect()
        self.session = PostgresSession(self._database)
        with self._our_words():
            self._database.execute(UNHURRIED)
            if is_snapshot:
                self._database.execute(SNAPSHOT)

    @property
    def identity(self) -> str | None:
        with self._our_words():
            return identity_of(self._database)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._our_words(), self._database.transaction():
            yield

    def columns(self, table: str) -> list[str]:
        return list(self._types(table))

    def fetch(self, sql: str, columns: Sequence[str], values: dict[str, Any]) -> list[Values]:  # noqa: ARG002
        with self._our_words():
            return self._database.execute(VALUE.sub(r"%(\1)s", sql.replace("%", "%%")).encode(), values).fetchall()

    def begin(self) -> None:
        self._switch_triggers("DISABLE")

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        types = self._types(table)
        for row in rows:
            _check(table, columns, row, types)
        statement = f"COPY {table} ({quoted(columns)}) FROM STDIN"
        try:
            with self._database.cursor().copy(statement.encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        except REFUSED as error:
            reason = ", ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
            raise CopyRefused(f"PostgreSQL refuses a row of {table}: {reason}: {CORRECT_IT}") from None

    def finish(self, sequences: Mapping[str, int]) -> None:
        for table, column in IDENTITIES.items():
            self._database.execute(SET_SEQUENCE.format(table=table, column=column).encode(), [sequences.get(table, 0)])
        keep_event_ids_rising(self._database, sequences.get("events", 0))
        self._switch_triggers("ENABLE")
        self._database.execute(f"ANALYZE {', '.join(TABLES)}".encode())

    def close(self) -> None:
        self._database.close()

    def _types(self, table: str) -> dict[str, str]:
        with self._our_words():
            return {row["name"]: row["type"] for row in self.session.rows("table_columns", table=table)}

    def _switch_triggers(self, how: str) -> None:
        for table in TABLES:
            self._database.execute(f"ALTER TABLE {table} {how} TRIGGER USER".encode())

    @contextmanager
    def _our_words(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise self._place.translate(error) from None


def _check(table: str, columns: Sequence[str], row: Values, types: Mapping[str, str]) -> None:
    """CopyRefused if PostgreSQL cannot have a value, which SQLite can."""
    for name, value in zip(columns, row, strict=True):
        kind, words = FITTING.get(types[name], (object, ""))
        if value is not None and (not isinstance(value, kind) or (isinstance(value, str) and NUL in value)):
            key = ", ".join(str(plain(row[columns.index(each)])) for each in TABLES[table])
            held = whole(repr(value), LONGEST_SHOWN)
            raise CopyRefused(f"{table} {key}: {name} holds {held}, PostgreSQL takes only {words} there: {CORRECT_IT}")
