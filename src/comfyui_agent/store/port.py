"""What a database driver offers. The operations of the store are written against this and know no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]
HEADING = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)


class Session(Protocol):
    """One transaction. Queries are known by name; each dialect has its own text of them.

    Times are `datetime` in UTC, in rows and in values. A time that someone wrote by hand and that is none stays text.
    A list or a tuple becomes JSON.
    """

    def rows(self, query: str, **values: Any) -> list[Row]: ...

    def run(self, query: str, **values: Any) -> int:
        """Run a query. Returns how many rows it changed."""

    def one(self, query: str, **values: Any) -> Row | None:
        """The first row, or None."""
        found = self.rows(query, **values)
        return found[0] if found else None

    def value(self, query: str, **values: Any) -> Any:
        """The first column of the first row. None if there is no row."""
        row = self.one(query, **values)
        return None if row is None else next(iter(row.values()))


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

    async def write(self, work: Callable[[Session], T], *, can_wait: bool = False) -> T:
        """Run work in a transaction. It is on disk when this returns; an exception undoes it.

        Work may run more than once before its commit. `can_wait`: for some milliseconds, to share a commit.
        """

    async def read(self, work: Callable[[Session], T]) -> T: ...

    def on_change(self, call: Callable[[], None]) -> None:
        """Have a function called in the event loop soon after another process has committed."""

    async def close(self, *, timeout: float | None = None) -> None: ...


def load_queries(folder: Path) -> dict[str, str]:
    """The queries of all `.sql` files, each below a line `-- name: next_jobs`. ValueError if a name occurs twice.

    What stands below `-- part: for_this_server` is put into queries in place of `{for_this_server}`.
    """
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for file in sorted(folder.glob("*.sql")):
        pieces = HEADING.split(file.read_text(encoding="utf-8"))
        for kind, name, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            if name in found[kind]:
                raise ValueError(f"{file.name}: the query {name} is there twice")
            found[kind][name] = text.strip()
    queries = found["name"]
    for name, text in found["part"].items():
        queries = {query: each.replace(f"{{{name}}}", text) for query, each in queries.items()}
    return queries
