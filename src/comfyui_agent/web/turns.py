"""Turns: an address that asks for very much at once waits for its own answers, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

AT_ONCE = 8


@dataclass
class _Line:
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    people: int = 0


class Turn:
    """May be over before its block is: when an answer begins, its work is done, however slowly it is read."""

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns: asyncio.Semaphore | None = turns

    def end(self) -> None:
        if self._turns is not None:
            self._turns.release()
            self._turns = None


class Turns:
    """So many at once for each address, the others in the order in which they came."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[Turn]:
        line = self._lines.setdefault(address, _Line())
        line.people += 1
        try:
            await line.turns.acquire()
            turn = Turn(line.turns)
            try:
                yield turn
            finally:
                turn.end()
        finally:
            line.people -= 1
            if not line.people:
                del self._lines[address]
