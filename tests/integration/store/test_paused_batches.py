"""Paused batches: what waits stays waiting, however it came to wait; what is at a server runs on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.store_batches import (
    FOX,
    batch_of,
    completions,
    fall,
    holds_of,
    land,
    queue,
    status_of,
)
from support.stores import (
    HOST,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    take_over,
    wish,
)


async def test_what_waits_in_a_paused_batch_stays_waiting_and_what_runs_runs_on(store: Store) -> None:
    await queue(store, 3)
    await queue(store, 1, "other")
    running = await lease_one(store)
    assert await store.run(ops.pause_batch, FOX) is True
    assert await store.run(ops.pause_batch, FOX) is False
    assert (await batch_of(store)).is_paused
    assert [each.batch_id for each in await lease(store, most=9)] == ["other"]
    await land(store, [running])
    assert await status_of(store) == "collecting"
    assert await store.run(ops.resume_batch, FOX) is True
    assert await store.run(ops.resume_batch, FOX) is False
    await land(store, await lease(store, most=9))
    found = await batch_of(store)
    assert (found.status, found.is_paused, await completions(store)) == (BatchStatus.COMPLETE, False, 1)


async def test_nobody_waits_for_a_paused_batch(store: Store) -> None:
    await queue(store, 3)
    await store.run(ops.pause_batch, FOX)
    assert await store.run(ops.is_queue_idle)
    assert await store.run(ops.is_batch_idle, FOX)
    await store.run(ops.resume_batch, FOX)
    assert not await store.run(ops.is_queue_idle)
    assert not await store.run(ops.is_batch_idle, FOX)


@pytest.mark.parametrize("status", ["pending", "complete", "cancelled", "expired"])
async def test_what_has_ended_or_is_not_whole_is_not_paused(store: Store, database: Database, status: str) -> None:
    await queue(store, 2)
    database.by_hand(f"UPDATE batches SET status = '{status}'")
    assert await store.run(ops.pause_batch, FOX) is False
    assert await store.run(ops.pause_batch, "never") is False
    assert await store.run(ops.resume_batch, FOX) is False
    assert await holds_of(store) == [None, None]


async def test_a_backoff_goes_on_where_it_was_when_the_batch_is_resumed(store: Store, database: Database) -> None:
    await queue(store, 2)
    first, second = await lease(store, most=2)
    await store.run(ops.requeue_job, first.lease, broken(), Retry(60.0, charged=True))
    await store.run(ops.pause_batch, FOX)
    await store.run(ops.requeue_job, second.lease, broken(), Retry(15.0, charged=True))
    assert await holds_of(store) == ["paused", "paused"]
    database.clock.advance(30)
    assert await lease(store, most=9) == []
    await store.run(ops.resume_batch, FOX)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [second.lease.job_id]
    database.clock.advance(30)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [first.lease.job_id]


async def _requeue(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True))


async def _unsend(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.return_unsent, leased.lease)


async def _release(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.release_jobs, WORKER)


async def _put_back(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.put_back_orphans, HOST)


async def _fail_and_retry(store: Store, database: Database, leased: Leased) -> None:
    await fall(store, [leased])
    await store.run(ops.retry_jobs, [leased.lease.job_id])


async def _fail_and_retry_batch(store: Store, database: Database, leased: Leased) -> None:
    await fall(store, [leased])
    await store.run(ops.retry_batch, FOX)


async def _complete_and_wish(store: Store, database: Database, leased: Leased) -> None:
    await land(store, [leased])
    await store.run(ops.resubmit_jobs, [(leased.lease.job_id, None)])


async def _reset_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand("UPDATE jobs SET status = 'pending', worker_id = NULL WHERE status = 'processing'")


WAITS_AGAIN: dict[str, Callable[[Store, Database, Leased], Awaitable[object]]] = {
    "requeue": _requeue,
    "unsend": _unsend,
    "release": _release,
    "put-back": _put_back,
    "retry": _fail_and_retry,
    "retry-batch": _fail_and_retry_batch,
    "wish": _complete_and_wish,
    "by-hand": _reset_by_hand,
}


@pytest.mark.parametrize("way", WAITS_AGAIN)
async def test_what_comes_to_wait_in_a_paused_batch_waits_with_it(store: Store, database: Database, way: str) -> None:
    await queue(store, 2)
    leased = await lease_one(store)
    await store.run(ops.pause_batch, FOX)
    await WAITS_AGAIN[way](store, database, leased)
    assert await holds_of(store) == ["paused", "paused"]
    assert await lease(store, most=9) == []
    await store.run(ops.resume_batch, FOX)
    assert await holds_of(store) == [None, None]
    if way in ("release", "put-back", "by-hand"):
        await land(store, [await take_over(store)])
    await land(store, await lease(store, most=9))
    assert (await status_of(store), await completions(store)) == ("complete", 1)


@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_member_that_comes_into_a_paused_batch_waits_with_it(
    store: Store, database: Database, by_hand: bool
) -> None:
    await queue(store, 1)
    await store.run(ops.pause_batch, FOX)
    if by_hand:
        database.by_hand(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index) "
            f"VALUES ('late', 'T2I', 'wf', 'pending', '{FOX}', 9)"
        )
    else:
        await store.run(ops.submit_jobs, [wish("late", batch_id=FOX, batch_index=9)])
    assert await lease(store, most=9) == []
    await store.run(ops.resume_batch, FOX)
    assert len(await lease(store, most=9)) == 2


async def test_what_was_ended_by_hand_while_paused_and_is_wanted_again_later_runs(
    store: Store, database: Database
) -> None:
    ids = await queue(store, 2)
    await store.run(ops.pause_batch, FOX)
    database.by_hand(f"UPDATE jobs SET status = 'done' WHERE id = {ids[0]}")
    await store.run(ops.resume_batch, FOX)
    database.by_hand(f"UPDATE jobs SET status = 'pending' WHERE id = {ids[0]}")
    assert [each.lease.job_id for each in await lease(store, most=9)] == ids


async def test_a_run_of_a_paused_batch_is_taken_over(store: Store) -> None:
    await queue(store, 2)
    await lease_one(store)
    await store.run(ops.pause_batch, FOX)
    await store.run(ops.release_jobs, WORKER)
    await land(store, [await take_over(store)])
    assert (await batch_of(store)).done == 1


@pytest.mark.parametrize("ending", ["land", "cancel"])
async def test_a_batch_that_ends_is_not_paused_in_its_next_generation(store: Store, ending: str) -> None:
    ids = await queue(store, 1)
    leased = await lease_one(store)
    await store.run(ops.pause_batch, FOX)
    await (fall(store, [leased]) if ending == "land" else ops.cancel_batch(store, FOX))
    assert not (await batch_of(store)).is_paused
    if ending == "cancel":
        await store.run(ops.withdraw_attempt, await open_attempt(store), "")
    await store.run(ops.retry_jobs, ids)
    assert len(await lease(store, most=9)) == 1


async def test_cancelling_a_paused_batch_ends_it(store: Store) -> None:
    await queue(store, 3)
    await store.run(ops.pause_batch, FOX)
    assert await ops.cancel_batch(store, FOX) == 3
    assert (await status_of(store), await holds_of(store)) == ("cancelled", [None] * 3)
