"""Named operations of the store: each runs in one transaction, whatever the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from comfyui_agent.store.port import Result, Row, Session, result_of
from comfyui_agent.store.rows import record

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class OperationKind(Enum):
    QUERY = auto()
    """Reads one consistent snapshot."""
    TRANSITION = auto()
    """Writes what an agent has to record."""
    COMMAND = auto()
    """Writes what somebody asked for: waiting agents look at the queue again."""


@dataclass(frozen=True)
class Operation(Generic[P, T_co]):
    """A function of a session. `Store.run` gives it a transaction; other operations call it inside theirs."""

    work: Callable[Concatenate[Session, P], Result[T_co]]
    kind: OperationKind

    def __call__(self, session: Session, *args: P.args, **kwargs: P.kwargs) -> T_co:
        return result_of(self.work(session, *args, **kwargs))


class OperationRunner(Protocol):
    """What parts of the agent need of the store."""

    async def run(self, operation: Operation[P, T_co], *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run one operation in a transaction of its own."""


def query(work: Callable[Concatenate[Session, P], T_co]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.QUERY)


def transition(work: Callable[Concatenate[Session, P], Result[T_co]]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.TRANSITION)


def command(work: Callable[Concatenate[Session, P], Result[T_co]]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.COMMAND)


def statement(name: str, *values: str, kind: OperationKind = OperationKind.TRANSITION) -> Operation[..., int]:
    """An operation that runs one query and returns how many rows it changed. Its arguments are the query's values."""

    def work(session: Session, *given: object) -> int:
        return session.run(name, **dict(zip(values, given, strict=True)))

    work.__name__ = name
    return Operation(work, kind)


def listing(kind: type[T], name: str, *values: str) -> Operation[..., list[T]]:
    """An operation that returns the rows of one query as records."""
    return _reading(lambda rows: [record(kind, row) for row in rows], name, values)


def column(kind: Callable[[list[Any]], T_co], name: str, *values: str) -> Operation[..., T_co]:
    """An operation that returns the first column of one query, as a list or a set."""
    return _reading(lambda rows: kind([next(iter(row.values())) for row in rows]), name, values)


def figure(kind: Callable[[Any], T_co], name: str, *values: str) -> Operation[..., T_co]:
    """An operation that returns the one value of a query."""
    return _reading(lambda rows: kind(next(iter(rows[0].values()))), name, values)


def _reading(read: Callable[[list[Row]], T_co], name: str, values: Sequence[str]) -> Operation[..., T_co]:
    def work(session: Session, *given: object) -> T_co:
        return read(session.rows(name, **dict(zip(values, given, strict=True))))

    work.__name__ = name
    return Operation(work, OperationKind.QUERY)
