"""Two processes that change one batch at the same moment: whichever comes first, the batch is as its members are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.store_batches import batch_of, queue
from support.stores import Database, Rows, broken, lease, wish

ROUNDS = 12
OPEN = "('pending', 'processing')"

Race = Callable[[Store, str, list[Leased]], Awaitable[object]]


async def complete_rest(store: Store, batch_id: str, leased: list[Leased]) -> None:
    for each in leased[1:]:
        await store.run(ops.complete_job, each.lease, ["a.png"], None)


async def put_back_rest(store: Store, batch_id: str, leased: list[Leased]) -> None:
    for each in leased[1:]:
        await store.run(ops.requeue_job, each.lease, broken(), Retry(0.0, charged=True))


async def retry_first(store: Store, batch_id: str, leased: list[Leased]) -> None:
    await store.run(ops.retry_jobs, [leased[0].lease.job_id])


async def add_member(store: Store, batch_id: str, leased: list[Leased]) -> None:
    await store.run(ops.submit_jobs, [wish(f"{batch_id}_late", batch_id=batch_id)])


async def pause(store: Store, batch_id: str, leased: list[Leased]) -> None:
    await store.run(ops.pause_batch, batch_id)


async def cancel(store: Store, batch_id: str, leased: list[Leased]) -> None:
    await ops.cancel_batch(store, batch_id)


async def lease_more(store: Store, batch_id: str, leased: list[Leased]) -> None:
    await lease(store, most=2, server="http://other:8188")


RACES: dict[str, tuple[Race, Race]] = {
    "the last lands and another is wanted again": (complete_rest, retry_first),
    "the last lands and one is added": (complete_rest, add_member),
    "one comes back and the batch is paused": (put_back_rest, pause),
    "one comes back and the batch is cancelled": (put_back_rest, cancel),
    "one is taken and the batch is cancelled": (lease_more, cancel),
    "the last lands and the batch is cancelled": (complete_rest, cancel),
}


@pytest.mark.parametrize("race", RACES)
async def test_a_batch_is_as_its_members_are(store: Store, database: Database, race: str) -> None:
    """Its first member has failed, two are at work, and one waits: it is held back while the others are leased."""
    other, (one, another) = database.open(), RACES[race]
    for number in range(ROUNDS):
        batch_id = f"batch-{number}"
        waits = [wish(f"{batch_id}_waits", batch_id=batch_id)] if one in (lease_more, put_back_rest) else []
        await queue(store, 3, batch_id)
        leased = await lease(store, most=3, size=99)
        await store.run(ops.fail_job, leased[0].lease, broken(), GiveUp(broken().kind))
        await store.run(ops.submit_jobs, waits)
        await asyncio.gather(one(store, batch_id, leased), another(other, batch_id, leased), return_exceptions=True)
        await ops.end_members(store)
        await check(store, database, batch_id)
        database.by_hand(f"DELETE FROM attempts; DELETE FROM jobs WHERE status IN {OPEN}")


async def check(store: Store, database: Database, batch_id: str) -> None:
    batch = await batch_of(store, batch_id)
    members: Rows = database.by_hand(f"SELECT status, hold FROM jobs WHERE batch_id = '{batch_id}'")
    left = [row for row in members if row["status"] in ("pending", "processing")]
    if batch.status.value in ("complete", "cancelled"):
        assert left == [], "a batch that has ended has no member left"
    else:
        assert left != [], "a batch that has not ended has something left"
    if batch.is_paused:
        assert {row["hold"] for row in left if row["status"] == "pending"} <= {"paused"}


@pytest.mark.parametrize("processes", [2, 3])
async def test_the_last_members_that_land_at_once_complete_a_batch_once(
    store: Store, database: Database, processes: int
) -> None:
    stores = [store, *(database.open() for _ in range(processes - 1))]
    for number in range(ROUNDS):
        await queue(store, processes, f"batch-{number}")
        leased = await lease(store, most=processes, size=99)
        landing = [each.run(ops.complete_job, one.lease, ["a"], None) for each, one in zip(stores, leased, strict=True)]
        await asyncio.gather(*landing)
    told = [event.batch_id for event in await store.run(ops.events_after, 0, 10_000) if event.name == "batch.completed"]
    assert told == [f"batch-{number}" for number in range(ROUNDS)]
