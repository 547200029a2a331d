"""What a database driver offers. The operations of the store are written against this and know no database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]
TIME_LENGTH = len("2025-08-09 12:30:01.250")
TIMES_KEPT = 4_096
"""Times that are remembered as text: lists show the same rows again and again."""


@lru_cache(TIMES_KEPT)
def time_text(moment: datetime) -> str:
    """A time as people and programs read it: UTC, to the millisecond."""
    return moment.isoformat(" ", "milliseconds")[:TIME_LENGTH]


def text(value: Any) -> str | None:
    """The text in a column. A time becomes text, as does what someone wrote by hand in another type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return time_text(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) else None


def whole_number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def paths_in(value: Any) -> tuple[str, ...]:
    """The paths in `outputs`. Empty if someone wrote something else there."""
    try:
        listed = json.loads(value) if value else []
    except (TypeError, ValueError, RecursionError):
        return ()
    return tuple(path for path in listed if isinstance(path, str)) if isinstance(listed, list) else ()


def parsed_object(value: Any) -> dict[str, Any]:
    """The JSON object in a column. Empty if someone wrote something else there."""
    try:
        found = json.loads(value) if value else {}
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Session(Protocol):
    """One transaction. Queries are known by name; each dialect has its own text of them.

    Times are `datetime` in UTC, in rows and in values. A time that someone wrote by hand and that is none stays text.
    """

    def rows(self, query: str, **values: Any) -> list[Row]: ...

    def one(self, query: str, **values: Any) -> Row | None:
        """The first row, or None."""

    def run(self, query: str, **values: Any) -> int:
        """Run a query. Returns how many rows it changed."""


class Driver(Protocol):
    """A database. Callers that wait at the same time may share a commit; each still succeeds or fails alone."""

    @property
    def identity(self) -> str:
        """A name that no other database has, not even a copy of this one in another place."""

    @property
    def log_bytes(self) -> int:
        """The size of the write-ahead log, where the database has one."""

    @property
    def version(self) -> int:
        """A number that grows with every commit here and with every change that is noticed from elsewhere."""

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run work in a transaction. It is on disk when this returns; an exception undoes it.

        Work may run more than once before its commit, so it may do nothing else that matters.
        """

    async def read(self, work: Callable[[Session], T]) -> T: ...

    def on_change(self, call: Callable[[], None]) -> None:
        """Have a function called in the event loop soon after another process has committed."""

    async def close(self, *, timeout: float | None = None) -> None: ...
