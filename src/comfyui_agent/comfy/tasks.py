"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

CANCEL_AGAIN_SECONDS = 0.2


async def wait_until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for some time; whether it came. Unlike `wait_for`, it never swallows a cancellation."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait({waiting}, timeout=seconds)
        return bool(done)
    finally:
        waiting.cancel()


async def wait_while(condition: Callable[[], bool], seconds: float = math.inf, every: float = 0.05) -> None:
    """Wait as long as something is so that nobody tells of, at most for some time."""
    until = time.monotonic() + seconds
    while condition() and time.monotonic() < until:  # noqa: ASYNC110 - it is looked at, not told
        await asyncio.sleep(every)


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are over, whatever they end with.

    A cancellation can be lost: before Python 3.12, `wait_for` swallows one that meets its own end. So it is repeated.
    """
    pending = set(tasks)
    while pending:
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, so that nobody is warned of it
