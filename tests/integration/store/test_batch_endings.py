"""Batches that are cancelled or expire: what has not ended ends with them, and what comes late changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable

import pytest

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import batch_endings
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.records import Lease, Leased
from comfyui_agent.store.store import Store
from support.store_batches import (
    EXPIRY,
    FOX,
    GAP,
    all_that_is_there,
    batch_of,
    completions,
    fall,
    job_of,
    land,
    lease_of,
    look,
    queue,
    status_of,
    told,
)
from support.stores import (
    LEASE_SECONDS,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    take_over,
)

# Cancelled.


async def half_done(store: Store) -> list[Leased]:
    """One is done, one runs, one is in backoff, one waits."""
    await queue(store, 4)
    leased = await lease_of(store, FOX, most=3)
    await land(store, leased[:1])
    await store.run(ops.requeue_job, leased[2].lease, broken(), Retry(15.0, charged=True))
    return leased


async def test_cancelling_ends_what_has_not_ended(store: Store, database: Database) -> None:
    await queue(store, 2, "other")
    others = await lease(store, most=1)
    await half_done(store)
    database.clock.advance(5)
    before = await store.run(ops.newest_event)
    assert await ops.cancel_batch(store, FOX) == 3
    found = await batch_of(store)
    assert (found.status, found.done, found.failed, found.generation) == (BatchStatus.CANCELLED, 1, 3, 1)
    assert (found.reason, found.completed_at) == ("by request", database.clock.text())
    failed = await store.run(ops.list_jobs, batch_id=FOX, status=JobStatus.FAILED)
    assert {job.failure_class for job in failed} == {"cancelled"}
    assert all("cancelled" in (job.error_trace or "") and FOX in (job.error_trace or "") for job in failed)
    assert {(job.worker_id, job.hold, job.next_attempt_at, job.needs_regeneration) for job in failed} == {
        (None, None, None, False)
    }
    events = await store.run(ops.events_after, before)
    assert [event.name for event in events] == ["job.cancelled"] * 3 + ["batch.cancelled"]
    assert {event.failure_class for event in events[:3]} == {"cancelled"}
    assert await status_of(store, "other") == "active"
    await land(store, others)
    assert await store.run(ops.held_leases, WORKER) == frozenset()


async def test_a_cancelled_batch_runs_nothing_any_more_and_completes_no_more(store: Store, database: Database) -> None:
    await half_done(store)
    await ops.cancel_batch(store, FOX)
    database.clock.advance(3600)
    assert await lease(store, most=9) == []
    assert await store.run(ops.is_queue_idle)
    assert await completions(store) == 0


@pytest.mark.parametrize("status", ["pending", "complete", "cancelled", "expired"])
async def test_what_has_ended_or_is_not_whole_is_not_cancelled(store: Store, database: Database, status: str) -> None:
    await half_done(store)
    database.by_hand(f"UPDATE batches SET status = '{status}'")
    before = all_that_is_there(database)
    assert await ops.cancel_batch(store, FOX) is None
    assert await ops.cancel_batch(store, "never") is None
    assert all_that_is_there(database) == before


async def test_a_result_that_comes_after_the_cancel_changes_nothing_and_is_recorded(
    store: Store, database: Database
) -> None:
    _, running, _ = await half_done(store)
    await ops.cancel_batch(store, FOX)
    before = all_that_is_there(database)

    def late(lease: Lease) -> list[Awaitable[object]]:
        return [
            store.run(ops.complete_job, lease, ["late.png"], None),
            store.run(ops.fail_job, lease, broken(), GiveUp(FailureClass.EXECUTION)),
            store.run(ops.requeue_job, lease, broken(), Retry(0.0, charged=True)),
            store.run(ops.refuse_job, lease, broken()),
            store.run(ops.return_unsent, lease),
            store.run(ops.claim_files, lease, ["late.png"], LEASE_SECONDS),
        ]

    assert (await job_of(store, running.lease.job_id)).fence > running.lease.fence
    for write in late(running.lease):
        with pytest.raises(LeaseLost):
            await write
    assert all_that_is_there(database) == before
    attempt = await open_attempt(store)
    assert (attempt.prompt_id, attempt.is_wanted) == (running.prompt_id, False)
    assert await store.run(ops.adopt_attempt, attempt, "other", LEASE_SECONDS) is None
    assert await store.run(ops.withdraw_attempt, attempt, "its result was discarded") == []
    (run,) = await store.run(ops.list_attempts, running.lease.job_id)
    assert run.outcome == "cancelled"
    assert json.loads(run.error or "") == {"kind": "cancelled", "message": "its result was discarded"}
    assert (await status_of(store), await store.run(ops.open_attempts)) == ("cancelled", [])


# In parts.


@pytest.fixture
async def ending(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Leased]:
    """A large batch that was cancelled by a process that died after the first part. Two members were at servers."""
    monkeypatch.setattr(batch_endings, "ENDED_AT_ONCE", 4)
    await queue(store, 14)
    leased = await lease_of(store, FOX, most=2)
    assert await store.run(batch_endings.begin_cancel, FOX) == 14
    return leased


async def test_of_a_large_batch_what_is_at_servers_ends_first_and_the_rest_in_parts(
    store: Store, ending: list[Leased]
) -> None:
    assert (await batch_of(store)).status is BatchStatus.CANCELLED
    assert (await batch_of(store)).failed == 2 + 4
    for leased in ending:
        assert (await job_of(store, leased.lease.job_id)).failure_class == "cancelled"
    assert "batch.cancelled" not in await told(store)
    await ops.end_members(store)
    found = await batch_of(store)
    assert (found.status, found.failed, found.generation) == (BatchStatus.CANCELLED, 14, 1)
    assert await told(store) == ["batch.created", "batch.cancelled"]
    names = [event.name for event in await store.run(ops.events_after, 0)]
    assert (names.count("job.cancelled"), names[-1]) == (14, "batch.cancelled")
    await ops.end_members(store)
    assert await told(store) == ["batch.created", "batch.cancelled"]


@pytest.mark.usefixtures("ending")
async def test_no_member_of_a_batch_that_is_ending_is_leased(store: Store) -> None:
    await queue(store, 1, "other")
    assert await lease_of(store, FOX, most=9) == []
    assert [leased.batch_id for leased in await lease(store, most=9)] == ["other"]
    assert not await store.run(ops.is_batch_idle, FOX)
    await ops.end_members(store)
    assert await store.run(ops.is_batch_idle, FOX)


async def test_a_member_retried_while_its_batch_ends_is_not_ended_again(store: Store, ending: list[Leased]) -> None:
    again = ending[0].lease.job_id
    assert await store.run(ops.retry_jobs, [again]) == [again]
    assert await ops.cancel_batch(store, "never") is None
    await ops.end_members(store)
    found = await batch_of(store)
    assert (found.pending, found.failed, found.generation) == (1, 13, 2)
    await land(store, [await take_over(store, prompt_id=ending[0].prompt_id)])
    assert (await batch_of(store)).status is BatchStatus.COMPLETE


async def test_several_processes_end_the_members_together(
    store: Store, database: Database, ending: list[Leased]
) -> None:
    await asyncio.gather(*(ops.end_members(each) for each in (store, database.open(), database.open())))
    names = [event.name for event in await store.run(ops.events_after, 0)]
    assert (names.count("job.cancelled"), names.count("batch.cancelled")) == (14, 1)


async def test_a_large_batch_expires_in_parts(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_endings, "ENDED_AT_ONCE", 4)
    await queue(store, 14)
    await look(store, database, 60)
    assert ((await batch_of(store)).status, (await batch_of(store)).failed) == (BatchStatus.EXPIRED, 4)
    await ops.end_members(store)
    failed = await store.run(ops.list_jobs, batch_id=FOX)
    assert {(job.failure_class, job.needs_regeneration) for job in failed} == {("timeout", True)}
    assert await told(store) == ["batch.created", "batch.expired"]


async def test_files_noted_for_a_run_that_was_cancelled_are_given_up(store: Store) -> None:
    await queue(store, 1)
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, ["half.png"], LEASE_SECONDS)
    await ops.cancel_batch(store, FOX)
    assert await store.run(ops.withdraw_attempt, await open_attempt(store), "gone") == ["half.png"]


async def test_retry_all_leaves_a_cancelled_batch_alone_and_asking_for_it_does_not(store: Store) -> None:
    await half_done(store)
    await ops.cancel_batch(store, FOX)
    assert await store.run(ops.retry_batch, FOX) == 0
    assert await status_of(store) == "cancelled"
    assert await store.run(ops.retry_batch, FOX, with_cancelled=True) == 3
    found = await batch_of(store)
    assert (found.status, found.generation, found.reason, found.completed_at) == (BatchStatus.ACTIVE, 2, None, None)
    await land(store, [await take_over(store)])
    await land(store, await lease(store, most=9))
    assert await told(store) == ["batch.created", "batch.cancelled", "batch.completed"]


async def test_one_member_of_a_cancelled_batch_is_retried_by_name(store: Store) -> None:
    await half_done(store)
    await ops.cancel_batch(store, FOX)
    _, _, third, fourth = await store.run(ops.list_jobs, batch_id=FOX)
    assert await store.run(ops.retry_jobs, [fourth.id]) == [fourth.id]
    assert (await batch_of(store)).generation == 2
    (leased,) = await lease(store, most=9)
    await land(store, [leased])
    found = await batch_of(store)
    assert (found.status, found.done, found.failed, found.generation) == (BatchStatus.COMPLETE, 2, 2, 2)
    assert (await job_of(store, third.id)).failure_class == "cancelled"


# Expired.


async def test_a_batch_expires_when_nothing_lands_although_members_are_rendered(
    store: Store, database: Database
) -> None:
    await queue(store, 3)
    leased = await lease(store, most=2)
    await store.run(ops.complete_job, leased[0].lease, ["a.png"], None)
    assert await look(store, database, 55) == []
    assert await status_of(store) == "collecting"
    before = await store.run(ops.newest_event)
    assert await look(store, database, 5) == [FOX]
    found = await batch_of(store)
    assert (found.status, found.done, found.failed) == (BatchStatus.EXPIRED, 1, 2)
    assert "59.5 s" in (found.reason or "")
    assert "batch_expiry_seconds" in (found.reason or "")
    failed = await store.run(ops.list_jobs, batch_id=FOX, status=JobStatus.FAILED)
    assert {(job.failure_class, job.needs_regeneration, job.worker_id) for job in failed} == {("timeout", True, None)}
    assert all(FOX in (job.error_trace or "") and "expired" in (job.error_trace or "") for job in failed)
    events = await store.run(ops.events_after, before)
    assert [event.name for event in events] == ["job.failed", "job.failed", "batch.expired"]
    assert (events[-1].message, events[-1].batch_id) == (found.reason, FOX)
    assert await completions(store) == 0
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, leased[1].lease, ["late.png"], None)
    assert not (await open_attempt(store)).is_wanted
    assert await look(store, database, 600) == []


async def test_the_clock_begins_anew_with_every_result(store: Store, database: Database) -> None:
    await queue(store, 4)
    leased = await lease(store, most=3)
    for each, land_it in zip(leased, (land, fall, land), strict=True):
        assert await look(store, database, 50) == []
        await land_it(store, [each])
    assert await look(store, database, 50) == []
    assert await status_of(store) == "collecting"


async def test_a_run_that_is_tried_again_is_no_result(store: Store, database: Database) -> None:
    await queue(store, 1)
    await look(store, database, 50)
    await store.run(ops.requeue_job, (await lease_one(store)).lease, broken(), Retry(0.0, charged=True))
    assert await look(store, database, 10) == [FOX]


async def test_time_that_nobody_saw_does_not_count(store: Store, database: Database) -> None:
    await queue(store, 1)
    await look(store, database, 55)
    for _ in range(20):
        database.clock.advance(GAP + 1)
        assert await store.run(ops.tick_batches, [FOX], GAP, EXPIRY) == []
    assert await look(store, database, 5) == [FOX]


async def test_two_agents_that_look_at_the_same_time_count_it_once(store: Store, database: Database) -> None:
    other = database.open()
    await queue(store, 1)
    for _ in range(11):
        assert await store.run(ops.tick_batches, [FOX], GAP, EXPIRY) == []
        assert await other.run(ops.tick_batches, [FOX], GAP, EXPIRY) == []
        database.clock.advance(5)
    assert await other.run(ops.tick_batches, [FOX], GAP, EXPIRY) == []
    database.clock.advance(5)
    assert await store.run(ops.tick_batches, [FOX], GAP, EXPIRY) == [FOX]
    assert await other.run(ops.tick_batches, [FOX], GAP, EXPIRY) == []
    assert (await told(store)).count("batch.expired") == 1


@pytest.mark.parametrize("step", [-3600.0, 3600.0, -86_400.0 * 400])
async def test_a_clock_that_steps_neither_ends_a_batch_nor_keeps_it(
    store: Store, database: Database, step: float
) -> None:
    await queue(store, 1)
    await look(store, database, 30)
    database.clock.advance(step)
    assert await look(store, database, 25) == []
    database.clock.advance(-step)
    assert await look(store, database, 0) == []
    assert await look(store, database, 5) == [FOX]


async def test_only_the_batches_that_are_named_are_looked_at(store: Store, database: Database) -> None:
    await queue(store, 1)
    await queue(store, 1, "other")
    assert await store.run(ops.tick_batches, ["never", "other", FOX], GAP, EXPIRY) == []
    assert await look(store, database, 60) == [FOX]
    assert await status_of(store, "other") == "active"


async def test_the_clock_of_a_retried_batch_begins_anew(store: Store, database: Database) -> None:
    await queue(store, 2)
    await look(store, database, 60)
    assert await store.run(ops.retry_batch, FOX) == 2
    assert ((await batch_of(store)).generation, (await batch_of(store)).reason) == (2, None)
    assert await look(store, database, 55) == []
    assert await look(store, database, 5) == [FOX]
    assert await told(store) == ["batch.created", "batch.expired", "batch.expired"]


async def test_the_clock_of_a_paused_batch_stands_still(store: Store, database: Database) -> None:
    """What is at a server runs on, and may take as long as it likes."""
    await queue(store, 2)
    await lease_one(store)
    await look(store, database, 30)
    await store.run(ops.pause_batch, FOX)
    assert await look(store, database, 300) == []
    await store.run(ops.resume_batch, FOX)
    assert await look(store, database, 25) == []
    assert await look(store, database, 5) == [FOX]
