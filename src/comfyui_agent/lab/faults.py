"""Faults that the proxy can inject: what happens to a request and to the bytes of its answer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Protocol


class Cut(Exception):
    """Ends a connection from inside a fault."""


class Fault(Protocol):
    """What happens to the bytes of an answer. Raising `Cut` resets the connection to the client."""

    async def request(self) -> None:
        """A matching request is about to be passed on."""

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:
        """What to send instead of a chunk of the answer, of which `passed` bytes went by before."""


@dataclass(frozen=True)
class Plain:
    """Passes everything on; the base of the others."""

    async def request(self) -> None:
        return None

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:  # noqa: ARG002 - others need it
        return [chunk]


@dataclass(frozen=True)
class Refuse(Plain):
    """Resets before the server hears of the request."""

    async def request(self) -> None:
        raise Cut


@dataclass(frozen=True)
class Late(Plain):
    """Resets the client at once and passes the request on later: a post that its sender believes lost."""

    seconds: float = 0.5


@dataclass(frozen=True)
class Reset(Plain):
    """Lets the request through and resets after so many bytes of the answer."""

    after: int = 0

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:
        if passed + len(chunk) > self.after:
            if self.after > passed:
                return [chunk[: self.after - passed], b""]
            raise Cut
        return [chunk]


@dataclass(frozen=True)
class Delay(Plain):
    """Holds back each piece of the answer."""

    seconds: float = 1.0

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:  # noqa: ARG002
        await asyncio.sleep(self.seconds)
        return [chunk]


@dataclass(frozen=True)
class Slice(Plain):
    """Passes the answer on in small pieces."""

    size: int = 1
    pause: float = 0.0

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:  # noqa: ARG002
        await asyncio.sleep(self.pause)
        return [chunk[start : start + self.size] for start in range(0, len(chunk), self.size)]


@dataclass(frozen=True)
class Silence(Plain):
    """Swallows the answer from some byte on; the connection stays open."""

    after: int = 0

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:
        return [chunk[: max(0, self.after - passed)]]


@dataclass(frozen=True)
class Garbage(Plain):
    """Replaces the answer by noise, from some byte on."""

    after: int = 0
    seed: int = 0

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:
        kept = max(0, self.after - passed)
        return [chunk[:kept] + random.Random(self.seed + passed).randbytes(max(0, len(chunk) - kept))]


@dataclass(frozen=True)
class Loss(Plain):
    """Resets at each piece of an answer with some probability."""

    rate: float = 0.1
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def answer(self, chunk: bytes, passed: int) -> list[bytes]:  # noqa: ARG002
        if self.dice.random() < self.rate:
            raise Cut
        return [chunk]


@dataclass
class Rule:
    """Which requests meet a fault, and how many of them still will (None: all)."""

    fault: Fault
    on: str
    times: int | None

    def takes(self, request: str) -> bool:
        if self.times == 0 or self.on not in request:
            return False
        if self.times is not None:
            self.times -= 1
        return True
