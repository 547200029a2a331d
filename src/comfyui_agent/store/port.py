"""What a database driver offers. The operations of the store are written against this and know no database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Row = Mapping[str, Any]
HEADING = re.compile(r"^-- (name|part): (\w+)(?:\((\w+)\))?$", re.MULTILINE)
SHARED_QUERIES = Path(__file__).parent / "queries"
"""Queries that have the same text in every dialect, but for parts that each dialect defines."""
PART = re.compile(r"\{(?P<name>\w+)(?:\((?P<value>[^(){}]*)\))?\}")


class ResultUnknown(Exception):
    """The transaction is committed, but what came of it has still to be looked up."""


@dataclass(frozen=True)
class Deferred(Generic[T]):
    """A result that is read after the commit: what it depends on is then sent together with the commit."""

    read: Callable[[], T]
    """May raise ResultUnknown, as answers do that were lost on their way."""
    look_up: Callable[[Session], T]
    """Finds the result of a committed transaction, in another one."""


Result: TypeAlias = T | Deferred[T]


def result_of(found: Result[T]) -> T:
    """The result, read now."""
    return found.read() if isinstance(found, Deferred) else found


class Session(Protocol):
    """One transaction. Queries are known by name; each dialect has its own text of them.

    Times are `datetime` in UTC, in rows and in values. A time that someone wrote by hand and that is none stays text.
    A list or a tuple becomes JSON.
    """

    def rows(self, query: str, **values: Any) -> list[Row]: ...

    def can_compare(self, column: str | None, key: object) -> bool:  # noqa: ARG002 - for columns with types
        """Whether a value can be compared with those of a column. Where columns have no types, any can."""
        return True

    def run(self, query: str, **values: Any) -> int:
        """Run a query. Returns how many rows it changed."""

    def send(self, query: str, **values: Any) -> None:
        """Run a query whose result nobody needs. It may wait for the next one, and fail with that or the commit."""
        self.run(query, **values)

    def ask(self, query: str, **values: Any) -> Callable[[], list[Row]]:
        """Run a query whose rows are called for later. Several that are asked in a row are sent together."""
        found = self.rows(query, **values)
        return lambda: found

    def require(self, query: str, problem: Exception, **values: Any) -> Callable[[], Row]:
        """Ask for a row that has to be there. `problem` is raised if it is not, at the latest by the commit."""
        row = self.one(query, **values)
        if row is None:
            raise problem
        return lambda: row

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

    async def write(self, work: Callable[[Session], Result[T]], *, can_wait: bool = False, wakes: bool = False) -> T:
        """Run work in a transaction. It is on disk when this returns; an exception undoes it.

        Work may run more than once before its commit. `can_wait`: for some milliseconds, to share a commit. `wakes`:
        other processes are told soon.
        """

    async def read(self, work: Callable[[Session], T]) -> T: ...

    def on_change(self, call: Callable[[], None]) -> None:
        """Have a function called in the event loop soon after another process has committed."""

    async def close(self, *, timeout: float | None = None) -> None: ...


def load_queries(*folders: Path) -> dict[str, str]:
    """The queries of all `.sql` files, each below a line `-- name: next_jobs`. ValueError if a name occurs twice.

    What stands below `-- part: now` is put into queries in place of `{now}`, and so is a query in place of its name. A
    part may take one argument: below `-- part: seconds_since(moment)`, `{moment}` stands for what is written in
    `{seconds_since(start_time)}`.
    """
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    arguments: dict[str, str] = {}
    for file in sorted((file for folder in folders for file in folder.glob("*.sql")), key=lambda file: file.name):
        pieces = HEADING.split(file.read_text(encoding="utf-8"))
        for kind, name, argument, text in zip(*(pieces[place::4] for place in range(1, 5)), strict=True):
            if name in found[kind]:
                raise ValueError(f"{file.name}: the query {name} is there twice")
            found[kind][name] = text.strip()
            if kind == "part":
                arguments[name] = argument
    parts = {**found["name"], **found["part"]}

    def expanded(text: str) -> str:
        return PART.sub(lambda use: _part(use, parts, arguments, expanded), text)

    return {name: expanded(text) for name, text in found["name"].items()}


def _part(
    use: re.Match[str], parts: Mapping[str, str], arguments: Mapping[str, str], expanded: Callable[[str], str]
) -> str:
    name, value = use["name"], use["value"]
    if name not in parts:
        return use[0]
    text = parts[name]
    return expanded(text.replace(f"{{{arguments[name]}}}", value) if value is not None else text)
