"""Background tasks: none is forgotten, and all of them end for certain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

log = logging.getLogger(__name__)

CANCEL_AGAIN_SECONDS = 0.2


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are over, whatever they end with."""
    pending = set(tasks)
    while pending:  # before Python 3.12, `wait_for` swallows a cancellation that meets its own end
        for task in pending:
            task.cancel()
        done, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
        for task in done:
            if not task.cancelled():
                task.exception()  # looked at, so that nobody is warned of it


class BackgroundTasks:
    """Tasks of one owner, kept until they end. A failure is logged with what the tasks are for."""

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    async def stop(self) -> None:
        await end_tasks(self._tasks)

    def _reap(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", self._purpose, exc_info=task.exception())
