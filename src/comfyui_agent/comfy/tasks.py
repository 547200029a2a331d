"""Ending background tasks for certain."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

CANCEL_AGAIN_SECONDS = 0.2


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
