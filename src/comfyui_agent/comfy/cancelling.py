"""Taking one prompt back, queued or running, without touching any other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum

from comfyui_agent.comfy.lookup import Ended, Running, Unknown, look_up
from comfyui_agent.comfy.transport import Transport

log = logging.getLogger(__name__)

LOOK_EVERY = 0.1
INTERRUPT_EVERY = 2.0


class Cancellation(str, Enum):
    """What became of the wish to cancel."""

    REMOVED = "removed"
    """It was waiting, or unknown, and is in the queue no more."""
    INTERRUPTED = "interrupted"
    """It ran, and was stopped."""
    ENDED_BEFORE = "ended_before"
    """It had ended already; its history entry tells how."""
    LEFT_RUNNING = "left_running"
    """It runs on: the server is too old to interrupt one prompt only."""
    STILL_RUNNING = "still_running"
    """It was told to stop and has not yet: a node that does not look up from its work."""


async def cancel(
    transport: Transport, prompt_id: str, *, can_interrupt: Callable[[], Awaitable[bool]], timeout: float
) -> Cancellation:
    """Delete, then look: a prompt that began in between is interrupted by its id, if the server can do that."""
    deadline = time.monotonic() + timeout
    interrupted_at: float | None = None
    while True:
        await transport.change("queue", {"delete": [prompt_id]})
        sighting = await look_up(transport, prompt_id)
        if isinstance(sighting, Unknown):
            return Cancellation.REMOVED
        if isinstance(sighting, Ended):
            return _how_it_ended(sighting, interrupted_at is not None)
        if isinstance(sighting, Running):
            if interrupted_at is None and not await can_interrupt():
                return Cancellation.LEFT_RUNNING
            if interrupted_at is None or time.monotonic() - interrupted_at > INTERRUPT_EVERY:
                await transport.change("interrupt", {"prompt_id": prompt_id})
                interrupted_at = time.monotonic()
        if time.monotonic() > deadline:
            return Cancellation.STILL_RUNNING
        await asyncio.sleep(LOOK_EVERY)


def _how_it_ended(sighting: Ended, interrupted: bool) -> Cancellation:
    stopped = any(message.event == "execution_interrupted" for message in sighting.entry.messages)
    return Cancellation.INTERRUPTED if interrupted and stopped else Cancellation.ENDED_BEFORE
