"""An SQLite file as tables, for copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.store.copying import SUMS, Tables, Values, quoted
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.driver import READ_PATIENCE, identity_at, our_words
from comfyui_agent.store.sqlite.session import TIMES, SqliteSession, read_time

MORE_TIMES = frozenset({"used_at", "ticked_at", "overtaken_at", "worker_until"})
"""Times that no query returns by these names."""
SEQUENCED = frozenset({"jobs", "events", "tokens", "webhooks", "deliveries"})
SET_SEQUENCE = "DELETE FROM sqlite_sequence WHERE name = :name; INSERT INTO sqlite_sequence VALUES (:name, :last)"
MENDED = "CASE typeof({0}) WHEN 'text' THEN coalesce(e3_mended(CAST({0} AS BLOB)), {0}) ELSE {0} END"


class SqliteTables(Tables):
    sources = SUMS | {"batches": "(SELECT rowid AS place, * FROM batches) AS batches"}

    def __init__(self, path: Path) -> None:
        self._path = path
        with our_words(path):
            self._database = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, create=False)
            self._database.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        self.session = SqliteSession(self._database)

    @property
    def identity(self) -> str:
        return identity_at(self._path, self.about().get("identity"))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with our_words(self._path), self._database:
            yield

    def columns(self, table: str) -> list[str]:
        return [row["name"] for row in self.session.rows("table_columns", table=table)]

    def fetch(self, sql: str, columns: Sequence[str], values: dict[str, Any]) -> list[Values]:
        times = [number for number, name in enumerate(columns) if name in TIMES | MORE_TIMES]
        with our_words(self._path):
            try:
                found = self._database.execute(sql, values).fetchall()
            except UnicodeDecodeError:  # a shell with another encoding wrote it
                names = ", ".join(MENDED.format(quoted([name])) for name in columns)
                found = self._database.execute(f"SELECT {names} FROM ({sql})", values).fetchall()  # noqa: S608 - names of the schema
        return [_with_times(row, times) for row in found] if times else found

    def begin(self) -> None:
        """Nothing: triggers are off for the connection."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        names = quoted(["rowid" if (table, name) == ("batches", "place") else name for name in columns])
        values = ", ".join("?" * len(columns))
        self._database.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", rows)  # noqa: S608 - names of the schema

    def finish(self, sequences: Mapping[str, int]) -> None:
        given = {name: sequences[name] for name in sequences.keys() & SEQUENCED}
        self._database.executemany(SET_SEQUENCE, ({"name": name, "last": last} for name, last in given.items()))

    def close(self) -> None:
        self._database.close()


def _with_times(row: Values, times: Sequence[int]) -> Values:
    values = list(row)
    for number in times:
        values[number] = _time(values[number])
    return tuple(values)


def _time(value: Any) -> Any:
    """A time in any form of ISO 8601, as `CURRENT_TIMESTAMP` and people write it. Other values stay as they are."""
    found = read_time(value)
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found.replace("Z", "+00:00"))
            found = found.astimezone(timezone.utc) if found.tzinfo else found.replace(tzinfo=timezone.utc)
            found = found.replace(microsecond=found.microsecond // 1000 * 1000)
        except (ValueError, OverflowError):
            pass
    return found
