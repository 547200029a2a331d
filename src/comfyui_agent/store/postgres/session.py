"""One transaction of a PostgreSQL connection."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import dict_row

from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.port import SHARED_QUERIES, Row, Session, load_queries

VALUE = re.compile(r"(?<![:\w]):(\w+)")
NUL, REPLACEMENT = "\0", "\ufffd"
ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def in_the_words_of_psycopg(query: str) -> str:
    return VALUE.sub(r"%(\1)s", query.replace("%", "%%"))


QUERIES = {
    name: in_the_words_of_psycopg(text)
    for name, text in load_queries(SHARED_QUERIES, Path(__file__).parent / "queries").items()
}
WRITING = frozenset(name for name, text in QUERIES.items() if re.search(r"\b(INSERT|UPDATE|DELETE)\b", text))
KEY_TYPES = {"start_time": datetime, "end_time": datetime, "created_at": datetime, "config_name": str} | dict.fromkeys(
    ("priority", "batch_index"), int
)


class PostgresSession(Session):
    """Runs named queries. Rows come back as mappings from column to value, times as `datetime` in UTC."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_loader("numeric", NumberLoader)
        self.database = connection
        self._together = contextlib.ExitStack()
        self._pipeline: psycopg.Pipeline | None = None
        self._is_behind = False
        self.has_written = False
        """Whether this transaction may have changed something."""

    def begin(self, statement: bytes, *, together: bool = True) -> None:
        """Begin a transaction. Together, what can wait is sent with the next query that is waited for."""
        self._is_behind = self.has_written = False
        self._pipeline = self._together.enter_context(self.database.pipeline()) if together else None
        self.database.execute(statement)

    def end(self, *statements: tuple[bytes, Sequence[object]]) -> list[int]:
        """End the transaction. Returns how many rows each statement changed. Raises what was sent and failed."""
        cursors = [self.database.execute(statement, values) for statement, values in statements]
        self.leave()
        return [cursor.rowcount for cursor in cursors]

    def leave(self) -> None:
        """Wait for all that was sent."""
        self._pipeline = None
        self._together.close()

    def _catch_up(self) -> None:
        """Wait for all results."""
        if self._is_behind and self._pipeline is not None:
            self._pipeline.sync()
        self._is_behind = False

    def _send(self, query: str, values: dict[str, Any]) -> psycopg.Cursor[Any]:
        self._is_behind = True
        self.has_written = self.has_written or query in WRITING
        cursor = self.database.cursor(row_factory=dict_row)
        return cursor.execute(QUERIES[query], _bound(values))

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self.ask(query, **values)()

    def ask(self, query: str, **values: Any) -> Callable[[], list[Row]]:
        cursor = self._send(query, values)

        def rows() -> list[Row]:
            self._catch_up()
            return list(cursor.fetchall())

        return rows

    def send(self, query: str, **values: Any) -> None:
        self._send(query, values)

    def can_compare(self, column: str | None, key: object) -> bool:
        return key is None or type(key) is KEY_TYPES.get(column or "", type(key))

    def run(self, query: str, **values: Any) -> int:
        cursor = self._send(query, values)
        self._catch_up()
        return cursor.rowcount


class NumberLoader(Loader):
    """Sums and rounded numbers as `int` or `float`, as SQLite has them."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


def _bound(values: dict[str, Any]) -> dict[str, Any]:
    """Values as PostgreSQL takes them: lists as JSON, and no NUL in a text."""
    for name, value in values.items():
        if isinstance(value, str):
            if isinstance(value, Enum):
                values[name] = value.value
            elif NUL in value:
                values[name] = value.replace(NUL, REPLACEMENT)
        elif isinstance(value, (list, tuple)):
            values[name] = ESCAPED_NUL.sub(rf"\1{REPLACEMENT}", json_text(value))
    return values
