"""Turns: whoever asks for very much at once waits for their own answers, and keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

AT_ONCE = 8
LONGEST_PAUSE = 2.0


@dataclass
class _Line:
    turns: asyncio.Semaphore
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
    """So many at once for each address or token, the others in the order in which they came."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[Turn]:
        line = self._lines.setdefault(who, _Line(asyncio.Semaphore(self._at_once)))
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
                del self._lines[who]


class TimeShare:
    """One turn at a time, and at most one part in `parts` of the time goes into all of them together."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._busy = asyncio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._busy.acquire()
        began = time.monotonic()
        try:
            yield
        finally:
            pause = min(LONGEST_PAUSE, (time.monotonic() - began) * (self._parts - 1))
            asyncio.get_running_loop().call_later(pause, self._busy.release)
