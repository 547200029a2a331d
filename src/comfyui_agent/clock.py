"""Time and waiting, as a thing that parts of the agent are given: a test gives them a clock that it moves itself."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from typing import Any

BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds that pass whatever happens to the wall clock, time asleep included where the system can tell."""
    return time.monotonic() if BOOT_TIME is None else time.clock_gettime(BOOT_TIME)


class Clock:
    """The interpreter's monotonic clock. A test's clock replaces `now`, `sleep` and `first_of`."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def first_of(self, waiting: Collection[asyncio.Future[Any]], seconds: float | None) -> set[Any]:
        """Wait until one of these is done, or for so long. Returns those that are done."""
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return set(done)

    async def wait_for(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for an event for so long. Unlike `asyncio.wait_for`, it never swallows a cancellation."""
        waiting = asyncio.ensure_future(event.wait())
        try:
            return bool(await self.first_of({waiting}, seconds))
        finally:
            waiting.cancel()

    async def wait_while(self, condition: Callable[[], bool], seconds: float = math.inf, every: float = 0.05) -> None:
        """Wait as long as a condition holds that nobody signals, at most for so long."""
        until = self.now() + seconds
        while condition() and self.now() < until:
            await self.sleep(every)


class BootClock(Clock):
    """Counts the time that the machine was asleep, too: leases run out meanwhile."""

    def now(self) -> float:
        return now()


MONOTONIC_CLOCK = Clock()
"""For clients whose times are compared with `time.monotonic()`."""
SYSTEM_CLOCK = BootClock()
