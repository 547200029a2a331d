"""Writing something down that must not get lost, through a database that is full or away for a while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.engine.clock import now
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE = 1.0


async def write_with_retry(store: Store, write: Callable[[], Awaitable[T]]) -> T:
    """Try until it is written. Errors that waiting does not mend are raised."""
    began = now()
    trouble: StoreError | None = None
    while True:
        try:
            result = await write()
            break
        except (DatabaseAway, DatabaseFull) as error:
            if trouble is None:
                log.error("%s. Trying again every second", error)
            trouble = error
            await asyncio.sleep(PAUSE)
    if trouble is not None:
        await alert(store, f"{trouble}; it took {now() - began:.0f} s until it could be written")
    return result


async def alert(store: Store, message: str) -> None:
    """Tell people that the database was not there for a while, now that it is."""
    with contextlib.suppress(StoreError):
        await store.run(ops.add_event, Event(EventName.ALERT_DATABASE, message=message))
