"""What a database driver offers. The store's transitions are written against this and know no database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]


def text(value: Any) -> str | None:
    """What should be a text in a row that someone wrote by hand."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) else None


def whole_number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def paths_in(value: Any) -> tuple[str, ...]:
    """The paths of `outputs`; none where someone wrote something else."""
    try:
        listed = json.loads(value) if value else []
    except (TypeError, ValueError, RecursionError):
        return ()
    return tuple(path for path in listed if isinstance(path, str)) if isinstance(listed, list) else ()


def parsed_object(value: Any) -> dict[str, Any]:
    """A JSON object in a column; an empty one where someone wrote something else."""
    try:
        found = json.loads(value) if value else {}
    except (TypeError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Session(Protocol):
    """One transaction. Queries are known by name; each dialect has its own text of them."""

    def rows(self, query: str, **values: Any) -> list[Row]: ...

    def one(self, query: str, **values: Any) -> Row | None:
        """The first row, or None."""

    def run(self, query: str, **values: Any) -> int:
        """How many rows were changed."""


class Driver(Protocol):
    """A database. Callers that wait at the same time may share a commit; each still succeeds or fails alone."""

    @property
    def identity(self) -> str:
        """A name of this database that no other has, not even a copy of it elsewhere."""

    @property
    def log_bytes(self) -> int:
        """The size of a log that grows while an old state is read, where the database has one."""

    @property
    def version(self) -> int:
        """A number that goes up with every change that this driver commits, and with each look that finds others'."""

    async def write(self, work: Callable[[Session], T]) -> T:
        """Run work in a transaction; it is on disk when this returns. An exception undoes it.

        Work may be run more than once before its commit: what it does besides the transaction must bear that.
        """

    async def read(self, work: Callable[[Session], T]) -> T: ...

    def on_change(self, call: Callable[[], None]) -> None:
        """Call this, in the event loop, soon after something else has committed."""

    async def close(self, *, timeout: float | None = None) -> None: ...
