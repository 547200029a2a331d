"""One transaction of a PostgreSQL connection."""

from __future__ import annotations

import re
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


KEY_TYPES = {"start_time": datetime, "end_time": datetime, "created_at": datetime, "config_name": str} | dict.fromkeys(
    ("priority", "batch_index"), int
)


class PostgresSession(Session):
    """Runs named queries. Rows come back as mappings from column to value, times as `datetime` in UTC."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        connection.adapters.register_loader("numeric", NumberLoader)
        self.connection = connection
        self._cursor = connection.cursor(row_factory=dict_row)

    def rows(self, query: str, **values: Any) -> list[Row]:
        self._cursor.execute(QUERIES[query], _bound(values))
        return list(self._cursor.fetchall())

    def can_compare(self, column: str | None, key: object) -> bool:
        return key is None or type(key) is KEY_TYPES.get(column or "", type(key))

    def run(self, query: str, **values: Any) -> int:
        return self._cursor.execute(QUERIES[query], _bound(values)).rowcount


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
