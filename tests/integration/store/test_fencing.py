"""A worker that lost its lease can change nothing, however it lost it and whatever it tries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.records import Lease
from comfyui_agent.store.store import Store
from support.stores import (
    HOST,
    LEASE_SECONDS,
    WORKER,
    Database,
    broken,
    everything,
    lease_one,
    open_attempt,
    submit_and_lease,
    take_over,
)

Write = Callable[[Store, Lease], Awaitable[object]]
Loss = Callable[[Store, Database, Lease], Awaitable[object]]

WRITES: dict[str, Write] = {
    "claim_files": lambda store, lease: store.run(ops.claim_files, lease, ["a.png"], LEASE_SECONDS),
    "complete": lambda store, lease: store.run(ops.complete_job, lease, ["a.png"], 1.0),
    "requeue": lambda store, lease: store.run(ops.requeue_job, lease, broken(), Retry(15.0, charged=True, strike=True)),
    "fail": lambda store, lease: store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION)),
    "unsend": lambda store, lease: store.run(ops.return_unsent, lease),
    "refuse": lambda store, lease: store.run(ops.refuse_job, lease, broken(FailureClass.INVALID)),
}


async def expired_and_adopted(store: Store, database: Database, lease: Lease) -> None:
    database.clock.advance(LEASE_SECONDS + 1)
    assert (await open_attempt(store)).has_expired
    await take_over(store)


async def cancelled(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.cancel_jobs, [lease.job_id])


async def cancelled_and_retried(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.cancel_jobs, [lease.job_id])
    await store.run(ops.retry_jobs, [lease.job_id])


async def cancelled_retried_and_adopted(store: Store, database: Database, lease: Lease) -> None:
    await cancelled_and_retried(store, database, lease)
    await take_over(store)


async def reset_by_hand(store: Store, database: Database, lease: Lease) -> None:
    database.by_hand("UPDATE jobs SET status='pending', worker_id=NULL, lease_expires_at=NULL")


async def reset_by_hand_and_adopted(store: Store, database: Database, lease: Lease) -> None:
    await reset_by_hand(store, database, lease)
    await take_over(store)


async def released(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.release_jobs, WORKER)


async def released_and_adopted(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.release_jobs, WORKER)
    await take_over(store)


async def put_back_as_an_orphan(store: Store, database: Database, lease: Lease) -> None:
    assert await store.run(ops.put_back_orphans, HOST) == 1


async def failed_and_leased_anew(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.retry_jobs, [lease.job_id])
    await lease_one(store)


async def completed(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.complete_job, lease, ["first.png"], 1.0)


async def unsent_and_leased_anew(store: Store, database: Database, lease: Lease) -> None:
    await store.run(ops.return_unsent, lease)
    await lease_one(store)


async def deleted_by_hand(store: Store, database: Database, lease: Lease) -> None:
    database.by_hand("DELETE FROM jobs")


LOSSES: list[Loss] = [
    expired_and_adopted,
    cancelled,
    cancelled_and_retried,
    cancelled_retried_and_adopted,
    reset_by_hand,
    reset_by_hand_and_adopted,
    released,
    released_and_adopted,
    put_back_as_an_orphan,
    failed_and_leased_anew,
    completed,
    unsent_and_leased_anew,
    deleted_by_hand,
]


@pytest.mark.parametrize("lose", LOSSES, ids=[loss.__name__ for loss in LOSSES])
async def test_every_write_of_a_lost_lease_says_so_and_changes_nothing(
    store: Store, database: Database, lose: Loss
) -> None:
    stale = (await submit_and_lease(store)).lease
    await lose(store, database, stale)
    before = everything(database)
    for write in WRITES.values():
        with pytest.raises(LeaseLost, match=f"job {stale.job_id} is no longer this worker's"):
            await write(store, stale)
    assert everything(database) == before
    assert (stale.job_id, stale.fence) not in await store.run(ops.held_leases, WORKER)


async def test_a_worker_that_lost_its_lease_no_longer_says_how_long_the_prompt_ran(
    store: Store, database: Database
) -> None:
    stale = (await submit_and_lease(store)).lease
    await expired_and_adopted(store, database, stale)
    before = everything(database)
    await store.run(ops.note_running, stale, 5.0)
    assert everything(database) == before


@pytest.mark.parametrize("name", WRITES)
async def test_each_write_works_for_the_holder_of_the_lease(store: Store, database: Database, name: str) -> None:
    lease = (await submit_and_lease(store)).lease
    before = everything(database)
    await WRITES[name](store, lease)
    assert everything(database) != before


@pytest.mark.parametrize("name", WRITES)
async def test_a_lease_that_ran_out_is_good_until_somebody_takes_the_job(
    store: Store, database: Database, name: str
) -> None:
    lease = (await submit_and_lease(store)).lease
    database.clock.advance(100 * LEASE_SECONDS)
    await WRITES[name](store, lease)


async def test_of_two_who_take_a_run_over_one_gets_it(store: Store, database: Database) -> None:
    other = database.open()
    await submit_and_lease(store)
    seen = await open_attempt(store)
    first = await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS)
    assert first is not None
    assert await other.run(ops.adopt_attempt, seen, "third-agent", LEASE_SECONDS) is None
    assert await store.run(ops.held_leases, "second-agent") == {(first.lease.job_id, first.lease.fence)}


async def test_both_of_two_holders_of_a_job_complete_and_one_is_accepted(store: Store, database: Database) -> None:
    stale = await submit_and_lease(store)
    database.clock.advance(LEASE_SECONDS + 1)
    fresh = await take_over(store)
    await store.run(ops.complete_job, fresh.lease, ["fresh.png"], None)
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, stale.lease, ["stale.png"], None)
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert job.outputs == ("fresh.png",)
    assert [event.name for event in await store.run(ops.events_after, 0)].count("job.done") == 1
