"""Named operations of the store: each runs in one transaction, whatever the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from comfyui_agent.store.port import Session

P = ParamSpec("P")
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

    work: Callable[Concatenate[Session, P], T_co]
    kind: OperationKind

    def __call__(self, session: Session, *args: P.args, **kwargs: P.kwargs) -> T_co:
        return self.work(session, *args, **kwargs)


class OperationRunner(Protocol):
    """What parts of the agent need of the store."""

    async def run(self, operation: Operation[P, T_co], *args: P.args, **kwargs: P.kwargs) -> T_co:
        """Run one operation in a transaction of its own."""


def query(work: Callable[Concatenate[Session, P], T_co]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.QUERY)


def transition(work: Callable[Concatenate[Session, P], T_co]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.TRANSITION)


def command(work: Callable[Concatenate[Session, P], T_co]) -> Operation[P, T_co]:
    return Operation(work, OperationKind.COMMAND)


def statement(name: str, *values: str, kind: OperationKind = OperationKind.TRANSITION) -> Operation[..., int]:
    """An operation that runs one query and returns how many rows it changed. Its arguments are the query's values."""

    def work(session: Session, *given: object) -> int:
        return session.run(name, **dict(zip(values, given, strict=True)))

    work.__name__ = name
    return Operation(work, kind)
