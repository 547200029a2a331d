"""Taking one prompt back, queued or running, without touching any other."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from comfyui_agent.comfy.lookup import Ended, Unknown, Waiting, look_at_queue, look_up, look_up_twice
from comfyui_agent.comfy.transport import Transport

LOOK_EVERY = 0.1
INTERRUPT_EVERY = 2.0
CLEAN_LOOKS, LOOK_AGAIN = 2, 0.5
OLDEST_WITH_TARGETED_INTERRUPT = (0, 3, 57)


class Cancellation(str, Enum):
    REMOVED = "removed"
    """It was waiting, or unknown, and is in the queue no more."""
    INTERRUPTED = "interrupted"
    """It ran, and was stopped."""
    ENDED_BEFORE = "ended_before"
    """It had ended already; its history entry says how."""
    LEFT_RUNNING = "left_running"
    """It runs on, as asked for, or because the server is too old to interrupt one prompt only."""
    STILL_RUNNING = "still_running"
    """It was interrupted and has not stopped yet, because its node does not check for interrupts."""

    @property
    def runs_on(self) -> bool:
        return self in (Cancellation.LEFT_RUNNING, Cancellation.STILL_RUNNING)


def can_interrupt_one(version: str) -> bool:
    """Whether a server of this ComfyUI version can interrupt one prompt only. An unreadable one counts as too old."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", version)
    return found is not None and tuple(int(part or 0) for part in found.groups()) >= OLDEST_WITH_TARGETED_INTERRUPT


async def cancel(
    transport: Transport, prompt_id: str, *, can_interrupt: Callable[[], Awaitable[bool]], timeout: float
) -> Cancellation:
    """Delete a prompt that waits, interrupt one that runs. One never seen is looked for twice: it may be under way."""
    deadline = time.monotonic() + timeout
    was_seen, interrupted_at = False, None
    while True:
        sighting = await look_up_twice(transport, prompt_id) if not was_seen else await look_up(transport, prompt_id)
        if isinstance(sighting, Unknown):
            return Cancellation.REMOVED
        if isinstance(sighting, Ended):
            stopped = any(message.event == "execution_interrupted" for message in sighting.entry.messages)
            return Cancellation.INTERRUPTED if interrupted_at is not None and stopped else Cancellation.ENDED_BEFORE
        if isinstance(sighting, Waiting):
            await transport.change("queue", {"delete": [prompt_id]})
        elif interrupted_at is None and not await can_interrupt():
            return Cancellation.LEFT_RUNNING
        elif interrupted_at is None or time.monotonic() - interrupted_at > INTERRUPT_EVERY:
            await transport.change("interrupt", {"prompt_id": prompt_id})
            interrupted_at = time.monotonic()
        if time.monotonic() > deadline:
            return Cancellation.STILL_RUNNING
        if was_seen:
            await asyncio.sleep(LOOK_EVERY)
        was_seen = True


async def cancel_all(
    transport: Transport, prompt_ids: Iterable[str], *, can_interrupt: Callable[[], Awaitable[bool]], timeout: float
) -> frozenset[str]:
    """Take many prompts back with few questions, and look twice. Returns those that the server still has at the end."""
    wanted = sorted(set(prompt_ids))
    deadline = time.monotonic() + timeout
    clean_looks, interrupted_at = 0, -INTERRUPT_EVERY
    while True:
        await transport.change("queue", {"delete": wanted})
        view = await look_at_queue(transport)
        running = frozenset(prompt.prompt_id for prompt in view.running).intersection(wanted)
        left = running | frozenset(prompt.prompt_id for prompt in view.pending).intersection(wanted)
        clean_looks = 0 if left else clean_looks + 1
        if clean_looks == CLEAN_LOOKS or time.monotonic() > deadline:
            return left
        if running and time.monotonic() - interrupted_at > INTERRUPT_EVERY and await can_interrupt():
            interrupted_at = time.monotonic()
            for prompt_id in running:
                await transport.change("interrupt", {"prompt_id": prompt_id})
        await asyncio.sleep(LOOK_EVERY if left else LOOK_AGAIN)
