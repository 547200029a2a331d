"""One transaction of an SQLite connection."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw

from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.port import SHARED_QUERIES, Row, Session, load_queries
from comfyui_agent.store.rows import TIME_LENGTH, TIMES_KEPT, time_text

QUERIES = load_queries(SHARED_QUERIES, Path(__file__).parent / "queries")


TIMES = frozenset(
    (  # noqa: SIM905 - a list of words
        "at completed_at created_at dead_at delivered_at dismissed_at end_time ended_at ends_at expires_at "
        "heartbeat_at hidden_at last_attempted_at last_used_at lease_expires_at lost_at next_attempt_at now "
        "removed_at reopened_at revoked_at since start_time started_at told_at"
    ).split()
)
"""Columns that hold times, as text such as `2025-08-09 12:30:01.250` in UTC."""
TEXTS = (  # noqa: SIM905 - a list of words
    "config_name job_type workflow_id status error_trace metadata worker_id failure_class server prompt_id batch_id "
    "outputs template_hash inputs file_path output_node hold avoids start_time end_time lease_expires_at "
    "next_attempt_at created_at priority retry_limit batch_index source digest pictures written needs external_id"
).split()


class SqliteSession(Session):
    """Runs named queries. Rows come back as mappings from column to value, times as `datetime` in UTC."""

    def __init__(self, database: apsw.Connection) -> None:
        self.database = database
        database.create_scalar_function("e3_mended", _mended, 1, deterministic=True)
        database.convert_binding = _bind
        self._columns: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def rows(self, query: str, **values: Any) -> list[Row]:
        cursor = self.database.execute(QUERIES[query], values)
        found: list[Row] = []
        columns, times = self._columns.get(query, ((), ()))
        try:
            for values_of_row in cursor:
                if len(values_of_row) != len(columns):  # the first time, or someone has added a column by hand
                    columns = tuple(column[0] for column in cursor.get_description())
                    times = tuple(column for column in columns if column in TIMES)
                    self._columns[query] = columns, times
                row = dict(zip(columns, values_of_row, strict=True))
                for column in times:
                    if row[column] is not None:
                        row[column] = read_time(row[column])
                found.append(row)
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


@lru_cache(TIMES_KEPT)
def read_time(value: Any) -> Any:
    """A time as E3 writes it becomes a `datetime`. What people wrote in another way stays as it is."""
    if isinstance(value, str) and len(value) == TIME_LENGTH and (value[7], value[10], value[19]) == ("-", " ", "."):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
        except ValueError:
            pass
    return value


def _bind(_cursor: apsw.Cursor, _number: int, value: Any) -> str:
    """The text of a time, or a list as JSON. SQLite has no type for them and asks here."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, (list, tuple)):
        return json_text(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _mended(*values: Any) -> str | None:
    """The text for bytes that are not valid UTF-8. None if they are valid."""
    data = bytes(values[0])
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # the likeliest meaning, and different bytes stay different names
    return None
