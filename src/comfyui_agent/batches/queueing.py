"""Putting a batch into the queue: part by part, and visible only as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from comfyui_agent.domain.batches import NewBatch
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.store.store import Store

AT_ONCE = 500


async def queue_batch(
    store: Store,
    batch: NewBatch,
    jobs: Iterable[NewJob],
    creator: str,
    tell: Callable[[int], None] = lambda _: None,
) -> int:
    """Queue all of it, without ever holding all of it; how many jobs. `tell` hears how many are in.

    If the creator, a lock that this process holds, dies before the end, it is as if nothing had been queued.
    """
    await store.create_batch(batch, creator)
    count = 0
    rest = iter(jobs)
    while part := await asyncio.to_thread(lambda: list(islice(rest, AT_ONCE))):
        count += len(await store.fill_batch(part))
        tell(count)
    await store.open_batch(batch.id)
    return count
