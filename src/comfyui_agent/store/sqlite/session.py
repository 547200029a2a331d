"""One transaction of an SQLite connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.store.port import Row
from comfyui_agent.store.queries import load_queries

QUERIES = load_queries(Path(__file__).parent / "queries")


class SqliteSession:
    """Runs named queries. Rows come back as mappings from column to value."""

    def __init__(self, database: apsw.Connection) -> None:
        self.database = database
        self._columns: dict[str, tuple[str, ...]] = {}

    def rows(self, query: str, **values: Any) -> list[Row]:
        cursor = self.database.execute(QUERIES[query], values)
        found: list[Row] = []
        columns = self._columns.get(query, ())
        for row in cursor:
            if len(row) != len(columns):  # the first time, or someone has added a column by hand
                columns = self._describe(query, cursor)
            found.append(dict(zip(columns, row, strict=True)))
        return found

    def one(self, query: str, **values: Any) -> Row | None:
        found = self.rows(query, **values)
        return found[0] if found else None

    def run(self, query: str, **values: Any) -> int:
        self.database.execute(QUERIES[query], values).close()
        return self.database.changes()

    def _describe(self, query: str, cursor: apsw.Cursor) -> tuple[str, ...]:
        columns = tuple(column[0] for column in cursor.get_description())
        self._columns[query] = columns
        return columns
