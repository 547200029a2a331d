"""Writing something down that must not get lost, through a database that is full or away for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from comfyui_agent.store.errors import DatabaseAway, DatabaseFull

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE = 1.0


async def persistently(write: Callable[[], Awaitable[T]]) -> T:
    """Try until it is written. Errors that waiting does not mend are raised."""
    said = False
    while True:
        try:
            return await write()
        except (DatabaseAway, DatabaseFull) as error:
            if not said:
                log.error("%s. Trying again every second", error)
                said = True
            await asyncio.sleep(PAUSE)
