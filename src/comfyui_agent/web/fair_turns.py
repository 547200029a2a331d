"""Sharing the server fairly: a limit of turns for each caller, and a limit of time for expensive work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakValueDictionary

AT_ONCE = 8
LONGEST_PAUSE = 2.0


class Turns:
    """At most `at_once` turns at a time for each caller. Others wait in the order in which they came."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[Callable[[], None]]:
        """Wait for a turn. The block gets a function that ends the turn early."""
        semaphore = self._semaphores.setdefault(caller, asyncio.Semaphore(self._at_once))
        await semaphore.acquire()
        with ExitStack() as turn:
            turn.callback(semaphore.release)
            yield turn.close


class TimeShare:
    """One turn at a time. All turns together take at most one part in `parts` of the time."""

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
