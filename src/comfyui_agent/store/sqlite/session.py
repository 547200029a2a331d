"""One transaction of an SQLite connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.store.port import Row, Session, load_queries

QUERIES = load_queries(Path(__file__).parent / "queries")


TEXTS = (  # noqa: SIM905 - a list of words
    "config_name job_type workflow_id status error_trace metadata worker_id failure_class server prompt_id batch_id "
    "outputs template_hash inputs file_path output_node hold avoids start_time end_time lease_expires_at "
    "next_attempt_at created_at priority retry_limit batch_index source digest pictures written"
).split()


class SqliteSession(Session):
    """Runs named queries. Rows come back as mappings from column to value."""

    def __init__(self, database: apsw.Connection) -> None:
        self.database = database
        database.create_scalar_function("e3_mended", _mended, 1, deterministic=True)
        self._columns: dict[str, tuple[str, ...]] = {}

    def rows(self, query: str, **values: Any) -> list[Row]:
        cursor = self.database.execute(QUERIES[query], values)
        found: list[Row] = []
        columns = self._columns.get(query, ())
        try:
            for row in cursor:
                if len(row) != len(columns):  # the first time, or someone has added a column by hand
                    columns = self._columns[query] = tuple(column[0] for column in cursor.get_description())
                found.append(dict(zip(columns, row, strict=True)))
        finally:
            cursor.close()
        return found

    def mend_texts(self) -> None:
        """Repair text columns that are not valid UTF-8. A shell with another encoding writes such rows."""
        for column in TEXTS:
            self.database.execute(
                f"UPDATE jobs SET {column} = e3_mended(CAST({column} AS BLOB)) "  # noqa: S608 - our own names
                f"WHERE typeof({column}) = 'text' AND e3_mended(CAST({column} AS BLOB)) IS NOT NULL"
            )
            if column == "config_name" and self.database.changes():
                self.database.execute("DELETE FROM about WHERE key = 'names_indexed'")  # it is made anew

    def run(self, query: str, **values: Any) -> int:
        self.database.execute(QUERIES[query], values).close()
        return self.database.changes()


def add_brief_views(database: apsw.Connection) -> None:
    """Make the views of jobs and batches for lists. They belong to the connection."""
    for query in ("add_brief_jobs", "add_brief_batches"):
        database.execute(QUERIES[query])


def _mended(*values: Any) -> str | None:
    """The text for bytes that are not valid UTF-8. None if they are valid."""
    data = bytes(values[0])
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # the likeliest meaning, and different bytes stay different names
    return None
