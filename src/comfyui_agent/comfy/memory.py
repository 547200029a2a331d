"""Making a server free its memory."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from comfyui_agent.comfy.answers import SystemStats
from comfyui_agent.comfy.transport import Transport

LOOK_EVERY = 0.25


@dataclass(frozen=True)
class Freed:
    """Free memory before and after, in bytes."""

    before: int
    after: int
    came_free: bool


async def look_at_stats(transport: Transport) -> SystemStats:
    return await transport.get_json("system_stats", SystemStats.read, most=transport.limits.small_answer_bytes)


async def free(transport: Transport, *, wanted: int | None, timeout: float) -> Freed:
    """Unload models and drop the cache. A busy server does it after its current prompt.

    Memory came free when `wanted` bytes are free or, without `wanted`, when free memory rose and stopped rising or
    nearly all is free.
    """
    before = (await look_at_stats(transport)).free_memory
    await transport.change("free", {"unload_models": True, "free_memory": True})
    deadline = time.monotonic() + timeout
    last = before
    while True:
        await asyncio.sleep(LOOK_EVERY)
        stats = await look_at_stats(transport)
        now = stats.free_memory
        is_empty = bool(stats.devices) and all(each.vram_free >= each.vram_total * 0.9 for each in stats.devices)
        came_free = now >= wanted if wanted is not None else before < now <= last or is_empty
        if came_free or time.monotonic() > deadline:
            return Freed(before, now, came_free)
        last = now
