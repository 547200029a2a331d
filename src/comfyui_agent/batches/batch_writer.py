"""Queueing a batch in parts. It becomes visible as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from comfyui_agent.domain.batches import NewBatch
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.pools import PLANNING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.liveness import bury_dead, registered
from comfyui_agent.store.store import Store

AT_ONCE = 500


async def queue_batch(
    store: Store,
    locks: Path,
    batch: NewBatch,
    jobs: Iterable[NewJob],
    report: Callable[[int], None] = lambda _: None,
) -> int:
    """Queue a batch in parts; `report` gets the number of jobs so far. If this process dies, the batch is discarded."""
    lock = AgentLock(locks, is_part=True)
    try:
        async with registered(store, lock):
            await _discard_unfinished(store, lock.host)
            return await _fill(store, lock.worker, batch, jobs, report)
    except Exception:
        await _discard_unfinished(store, lock.host)
        raise


async def _fill(
    store: Store, creator: str, batch: NewBatch, jobs: Iterable[NewJob], report: Callable[[int], None]
) -> int:
    await store.run(ops.create_batch, batch, creator)
    count = 0
    rest = iter(jobs)
    while part := await PLANNING.run(lambda: list(islice(rest, AT_ONCE))):
        await store.run(ops.beat_agent, creator)
        count += len(await store.run(ops.fill_batch, part))
        report(count)
    await store.run(ops.open_batch, batch.id)
    return count


async def _discard_unfinished(store: Store, host: str) -> None:
    await bury_dead(store, host)
    while await store.run(ops.discard_unfinished, host):
        pass
