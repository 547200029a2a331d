"""Batches in a store: filled, opened, worked off, and looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyui_agent.domain.batches import Batch, BatchKind, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from support.stores import LEASE_SECONDS, SERVER, WORKER, Database, Rows, broken, everything, wish

FOX = "fox_1"
CREATOR = "a-door"
AT_ONCE = 1_000
GAP, EXPIRY = 10.0, 59.5
"""How far apart two looks at a batch may be, and how long it is given."""


async def fill(
    store: Store,
    count: int = 3,
    batch_id: str = FOX,
    *,
    kind: BatchKind = BatchKind.SWEEP,
    is_serial: bool = False,
    wants_grid: bool = False,
    creator: str | None = CREATOR,
    **facts: Any,
) -> list[JobId]:
    """A batch with members that is not whole yet."""
    made = NewBatch(batch_id, "fox", kind, {"made": "in a test"}, is_serial=is_serial, wants_grid=wants_grid)
    await store.run(ops.create_batch, made, creator)
    ids: list[JobId] = []
    for start in range(0, count, AT_ONCE):
        part = range(start, min(count, start + AT_ONCE))
        ids += await store.run(
            ops.fill_batch,
            [wish(f"{batch_id}_{index}", batch_id=batch_id, batch_index=index, **facts) for index in part],
        )
    return ids


async def queue(store: Store, count: int = 3, batch_id: str = FOX, **facts: Any) -> list[JobId]:
    """A batch with members that wait."""
    ids = await fill(store, count, batch_id, **facts)
    await store.run(ops.open_batch, batch_id)
    return ids


async def batch_of(store: Store, batch_id: str = FOX) -> Batch:
    found = await store.run(ops.find_batch, batch_id)
    assert found is not None
    return found


async def job_of(store: Store, job_id: int) -> Job:
    found = await store.run(ops.find_job, str(job_id))
    assert found is not None
    return found


async def status_of(store: Store, batch_id: str = FOX) -> str:
    return (await batch_of(store, batch_id)).status.value


async def holds_of(store: Store, batch_id: str = FOX) -> list[str | None]:
    return [job.hold for job in await store.run(ops.list_jobs, batch_id=batch_id, limit=1000)]


async def lease_of(
    store: Store, batch_id: str | None, *, most: int = 1, worker: str = WORKER, server: str = SERVER
) -> list[Leased]:
    """As an agent asks that works off one batch by name."""
    window = Window(server, 16, batch_id=batch_id)
    return await store.run(ops.lease_jobs, worker, window, [mint_prompt_id() for _ in range(most)], LEASE_SECONDS)


async def land(store: Store, leased: Sequence[Leased]) -> None:
    for each in leased:
        await store.run(ops.complete_job, each.lease, [f"{each.config_name}.png"], None)


async def fall(store: Store, leased: Sequence[Leased]) -> None:
    for each in leased:
        await store.run(ops.fail_job, each.lease, broken(), GiveUp(FailureClass.EXECUTION))


async def told(store: Store, batch_id: str = FOX, after: int = 0) -> list[str]:
    """What was told of a batch itself, in order."""
    events = await store.run(ops.events_after, after, 1_000_000)
    return [event.name for event in events if event.batch_id == batch_id and event.job_id is None]


async def completions(store: Store, batch_id: str = FOX) -> int:
    return (await told(store, batch_id)).count("batch.completed")


def all_that_is_there(database: Database) -> dict[str, Rows]:
    return everything(database) | {"batches": database.by_hand("SELECT * FROM batches")}


async def look(store: Store, database: Database, seconds: float, step: float = 5.0) -> list[str]:
    """Look at a batch that is being rendered for so many seconds; what has expired by then."""
    expired = await store.run(ops.tick_batches, [FOX], GAP, EXPIRY)
    for _ in range(round(seconds / step)):
        database.clock.advance(step)
        expired += await store.run(ops.tick_batches, [FOX], GAP, EXPIRY)
    return expired
