"""Batches: filled unseen, completed once in the transaction of the last member, opened anew, ended, paused, drawn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from comfyui_agent.domain.batches import BatchKind, BatchStatus, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.retrying import Again, Over
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import batching, settling
from comfyui_agent.store.errors import BatchTaken, LeaseLost
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Lease, Leased
from comfyui_agent.store.store import Store
from support.batched import (
    CREATOR,
    FOX,
    all_that_is_there,
    batch_of,
    completions,
    fall,
    fill,
    holds_of,
    job_of,
    land,
    lease_of,
    queue,
    status_of,
    told,
)
from support.stores import (
    LEASE_SECONDS,
    SERVER,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    submit_one,
    take_over,
    wish,
)

GRAPH = Template.of({"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}}})

Landing = Callable[[Store, Database, Leased], Awaitable[object]]


def nobody(worker: str) -> bool:
    return False


def everybody(worker: str) -> bool:
    return True


# Filling.


async def test_a_batch_that_is_being_filled_runs_nothing_and_is_waited_for(store: Store) -> None:
    await fill(store)
    assert await lease(store, most=9) == []
    assert await lease_of(store, FOX, most=9) == []
    assert not await store.is_idle()
    assert not await store.is_batch_idle(FOX)
    assert (await status_of(store), await told(store)) == ("pending", [])
    await store.open_batch(FOX)
    assert (await status_of(store), await told(store)) == ("active", ["batch.created"])
    assert len(await lease(store, most=9)) == 3


async def test_opening_a_batch_again_does_nothing(store: Store) -> None:
    await queue(store)
    await store.pause_batch(FOX)
    await store.open_batch(FOX)
    assert await told(store) == ["batch.created"]
    assert await holds_of(store) == ["paused"] * 3


async def test_opening_one_batch_leaves_another_that_is_being_filled_alone(store: Store) -> None:
    await fill(store, batch_id="other")
    await queue(store)
    assert {leased.batch_id for leased in await lease(store, most=9)} == {FOX}


async def test_an_id_that_is_taken_is_refused_and_nothing_is_changed(store: Store, database: Database) -> None:
    await queue(store)
    before = all_that_is_there(database)
    with pytest.raises(BatchTaken, match="fox_1"):
        await store.create_batch(NewBatch(FOX, "again", BatchKind.BOOK), CREATOR)
    assert all_that_is_there(database) == before


@pytest.mark.parametrize("names", [["new", "taken"], ["twice", "twice"]])
async def test_a_part_with_a_name_that_is_taken_is_refused_whole(
    store: Store, database: Database, names: list[str]
) -> None:
    await submit_one(store, "taken")
    await fill(store)
    before = all_that_is_there(database)
    with pytest.raises(BatchTaken, match=names[1]):
        await store.fill_batch([wish(name, batch_id=FOX, template=GRAPH) for name in names])
    assert all_that_is_there(database) == before


async def test_what_a_dead_door_had_begun_is_as_if_it_had_never_been(store: Store, database: Database) -> None:
    await queue(store, batch_id="whole")
    await fill(store, batch_id="living", creator="another-door")
    others = all_that_is_there(database)
    await fill(store, 7)
    while await store.discard_unfinished(lambda worker: worker == CREATOR):
        pass
    left = all_that_is_there(database)
    for table in ("jobs", "batches", "attempts", "job_counts"):
        assert left[table] == others[table]
    await store.open_batch("living")
    assert len(await lease(store, most=16)) == 6


async def test_a_batch_that_nobody_is_said_to_fill_is_left_alone(store: Store) -> None:
    await fill(store, creator=None)
    assert await store.discard_unfinished(everybody) == 0
    assert (await batch_of(store)).total == 3


async def test_much_that_a_dead_door_had_begun_is_removed_a_part_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "DISCARDED_AT_ONCE", 40)
    for number in range(3):
        await fill(store, 50, f"batch_{number}")
    removed = []
    while part := await store.discard_unfinished(everybody):
        removed.append(part)
    assert sum(removed) == 3 * 51
    assert max(removed) <= 41
    assert (await store.batches(), await store.jobs()) == ([], [])


@pytest.mark.slow
async def test_a_hundred_thousand_that_a_dead_door_had_begun_vanish_while_others_work(store: Store) -> None:
    await fill(store, 100_000)
    await queue(store, 50, "small")
    parts = 0
    while await store.discard_unfinished(everybody):
        parts += 1
        await land(store, await lease(store))
    assert parts >= 100_000 / batching.DISCARDED_AT_ONCE
    assert await store.batch(FOX) is None
    assert (await batch_of(store, "small")).done == parts
    assert (await store.counts()).pending == 50 - parts


async def test_a_member_that_was_cancelled_vanishes_with_a_batch_that_never_was(store: Store) -> None:
    first, *_ = await fill(store)
    await store.cancel([first])
    while await store.discard_unfinished(everybody):
        pass
    assert await store.jobs() == []


async def test_a_member_that_was_cancelled_and_retried_still_waits_until_the_batch_is_whole(store: Store) -> None:
    first, *_ = await fill(store)
    await store.cancel([first])
    await store.retry([first])
    assert await lease(store, most=9) == []
    await store.open_batch(FOX)
    assert len(await lease(store, most=9)) == 3


async def test_a_batch_is_complete_at_once_if_all_its_members_failed_before_it_was_whole(store: Store) -> None:
    ids = await fill(store)
    await store.cancel(ids)
    assert await status_of(store) == "pending"
    await store.open_batch(FOX)
    assert await told(store) == ["batch.created", "batch.completed"]
    found = await batch_of(store)
    assert (found.status, found.generation, found.failed) == (BatchStatus.COMPLETE, 1, 3)
    assert await store.is_idle()


async def test_jobs_that_are_there_already_are_made_a_batch_in_the_order_they_are_named(store: Store) -> None:
    ids = [await submit_one(store, name) for name in "abc"]
    (done,) = await lease(store)
    await land(store, [done])
    other = await queue(store, 1, "other")
    assert await store.group(NewBatch(FOX, "fox", BatchKind.FILES), [ids[2], ids[0], *other]) == 2
    found = await batch_of(store)
    assert (found.kind, found.status, found.total, found.done) == (BatchKind.FILES, BatchStatus.ACTIVE, 2, 1)
    assert [job.config_name async for job in store.members(FOX)] == ["c", "a"]
    assert (await batch_of(store, "other")).total == 1
    await land(store, await lease(store, most=9))
    assert (await status_of(store), await told(store)) == ("complete", ["batch.created", "batch.completed"])


async def test_jobs_that_have_all_ended_are_a_batch_that_is_complete(store: Store) -> None:
    job_id = await submit_one(store)
    await land(store, await lease(store))
    await store.group(NewBatch(FOX, "fox", BatchKind.FILES), [job_id])
    assert await told(store) == ["batch.created", "batch.completed"]


# Progress.


async def test_a_batch_says_what_its_members_are(store: Store, database: Database) -> None:
    ids = await queue(store, 5, wants_grid=True)
    leased = await lease(store, most=3)
    await land(store, leased[:1])
    await store.cancel([ids[4]])
    found = await batch_of(store)
    assert found.as_json() == {
        "id": FOX,
        "name": "fox",
        "kind": "sweep",
        "status": "collecting",
        "total": 5,
        "pending": 1,
        "processing": 2,
        "done": 1,
        "failed": 1,
        "created_at": database.clock.text(),
        "completed_at": None,
        "generation": 1,
        "grid": None,
    }
    assert (found.metadata, found.ended, found.is_grid_due) == ({"made": "in a test"}, 2, False)


async def test_counts_are_those_of_the_rows_also_after_changes_by_hand(store: Store, database: Database) -> None:
    await queue(store, 6)
    database.by_hand(
        f"UPDATE jobs SET status = 'done' WHERE batch_id = '{FOX}' AND batch_index < 2;"
        f"DELETE FROM jobs WHERE batch_id = '{FOX}' AND batch_index = 3;"
        f"UPDATE batches SET status = status"
    )
    found = await batch_of(store)
    assert (found.total, found.pending, found.done) == (5, 3, 2)


async def test_the_newest_batches_come_first_and_can_be_of_one_kind(store: Store, database: Database) -> None:
    for name, kind in (("a", BatchKind.SWEEP), ("b", BatchKind.BOOK), ("c", BatchKind.SWEEP)):
        await queue(store, 1, name, kind=kind)
        database.clock.advance(1)
    assert [batch.id for batch in await store.batches()] == ["c", "b", "a"]
    assert [batch.id for batch in await store.batches(kind=BatchKind.SWEEP)] == ["c", "a"]
    assert [batch.id for batch in await store.batches(limit=1)] == ["c"]
    assert await store.batch("never") is None


async def test_all_members_can_be_gone_through_in_their_order(store: Store) -> None:
    ids = await queue(store, 2345)
    await queue(store, 3, "other")
    await store.set_priority(ids[2000], 1)
    assert [job.id async for job in store.members(FOX)] == ids
    assert [job.id async for job in store.members("never")] == []


# The end.


async def _complete(store: Store, database: Database, leased: Leased) -> None:
    await store.complete(leased.lease, ["a.png"], None)


async def _fail(store: Store, database: Database, leased: Leased) -> None:
    await store.fail(leased.lease, broken(), Over(FailureClass.EXECUTION))


async def _refuse(store: Store, database: Database, leased: Leased) -> None:
    await store.refuse(leased.lease, broken(FailureClass.INVALID))


async def _cancel(store: Store, database: Database, leased: Leased) -> None:
    await store.cancel([leased.lease.job_id])


async def _cancel_waiting(store: Store, database: Database, leased: Leased) -> None:
    await store.requeue(leased.lease, broken(), Again(15.0, charged=True))
    await store.cancel([leased.lease.job_id])


async def _delete(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"DELETE FROM jobs WHERE id = {leased.lease.job_id}")


async def _delete_waiting(store: Store, database: Database, leased: Leased) -> None:
    await store.unsend(leased.lease)
    database.by_hand(f"DELETE FROM jobs WHERE id = {leased.lease.job_id}")


async def _done_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"UPDATE jobs SET status = 'done' WHERE id = {leased.lease.job_id}")


async def _failed_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"UPDATE jobs SET status = 'failed' WHERE id = {leased.lease.job_id}")


async def _next_worker(store: Store, database: Database, leased: Leased) -> None:
    await store.release(WORKER)
    await land(store, [await take_over(store)])


ENDINGS: dict[str, Landing] = {
    "complete": _complete,
    "fail": _fail,
    "refuse": _refuse,
    "cancel": _cancel,
    "cancel-waiting": _cancel_waiting,
    "delete": _delete,
    "delete-waiting": _delete_waiting,
    "done-by-hand": _done_by_hand,
    "failed-by-hand": _failed_by_hand,
    "next-worker": _next_worker,
}
TELLING = {"complete": "done", "fail": "failed", "refuse": "failed", "cancel": "cancelled", "next-worker": "done"}
TELLING["cancel-waiting"] = "cancelled"


@pytest.mark.parametrize("ending", ENDINGS)
async def test_whoever_lands_the_last_member_completes_the_batch_once(
    store: Store, database: Database, ending: str
) -> None:
    await queue(store, 2)
    await queue(store, 1, "other")
    first, last = await lease(store, most=2)
    await land(store, [first])
    assert await status_of(store) == "collecting"
    database.clock.advance(60)
    await ENDINGS[ending](store, database, last)
    found = await batch_of(store)
    assert (found.status, found.generation) == (BatchStatus.COMPLETE, 1)
    assert (found.pending, found.processing) == (0, 0)
    assert (found.completed_at or "") > found.created_at
    assert await told(store) == ["batch.created", "batch.completed"]
    assert (await status_of(store, "other"), await completions(store, "other")) == ("active", 0)


@pytest.mark.parametrize("ending", TELLING)
async def test_the_completion_is_told_after_the_end_of_the_last_member(
    store: Store, database: Database, ending: str
) -> None:
    await queue(store, 1)
    (last,) = await lease(store)
    await ENDINGS[ending](store, database, last)
    *_, before, newest = await store.events_after(0)
    assert (newest.name, newest.batch_id, newest.job_id) == ("batch.completed", FOX, None)
    assert (before.name, before.job_id) == (f"job.{TELLING[ending]}", last.lease.job_id)
    assert before.batch_id == FOX


async def test_one_statement_by_hand_that_ends_all_members_completes_the_batch_once(
    store: Store, database: Database
) -> None:
    await queue(store, 20)
    database.by_hand(f"UPDATE jobs SET status = 'done' WHERE batch_id = '{FOX}'")
    assert (await status_of(store), await completions(store)) == ("complete", 1)
    await queue(store, 20, "other")
    database.by_hand("DELETE FROM jobs WHERE batch_id = 'other'")
    assert (await status_of(store, "other"), await completions(store, "other")) == ("complete", 1)


async def test_what_happens_to_ended_members_is_no_second_completion(store: Store, database: Database) -> None:
    ids = await queue(store, 3)
    await land(store, await lease(store, most=3))
    database.by_hand(
        f"UPDATE jobs SET status = 'failed' WHERE id = {ids[0]};"
        f"UPDATE jobs SET status = 'failed' WHERE id = {ids[0]};"
        f"DELETE FROM jobs WHERE id = {ids[1]};"
        f"UPDATE batches SET status = 'complete'"
    )
    await store.cancel(ids)
    await store.open_batch(FOX)
    assert (await status_of(store), await completions(store)) == ("complete", 1)
    assert (await batch_of(store)).generation == 1


async def test_a_member_that_has_ended_and_is_deleted_completes_nothing(store: Store, database: Database) -> None:
    await queue(store, 2)
    (first,) = await lease(store)
    await land(store, [first])
    database.by_hand(f"DELETE FROM jobs WHERE id = {first.lease.job_id}")
    assert (await status_of(store), await completions(store)) == ("collecting", 0)


async def test_what_is_undone_completes_nothing(store: Store, database: Database) -> None:
    await queue(store, 1)
    leased = await lease_one(store)
    before = all_that_is_there(database)

    def fall_over(session: Session) -> None:
        settling.complete(session, leased.lease, ["a.png"], None)
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await store.driver.write(fall_over)
    assert all_that_is_there(database) == before
    await land(store, [leased])
    assert await completions(store) == 1


async def test_members_of_many_workers_that_land_at_once_complete_it_once(store: Store, database: Database) -> None:
    stores = [store, database.open(), database.open()]
    ids = await queue(store, 30)
    leased = [await lease(each, most=8, worker=f"worker-{number}") for number, each in enumerate(stores)]
    landing = [each.complete(one.lease, ["a"], None) for each, mine in zip(stores, leased, strict=True) for one in mine]
    cancelling = [each.cancel(ids[10:]) for each in stores]
    done = await asyncio.gather(*landing, *cancelling, return_exceptions=True)
    assert {type(answer) for answer in done} <= {list, LeaseLost}
    found = await batch_of(store)
    assert (found.status, found.generation, found.ended) == (BatchStatus.COMPLETE, 1, 30)
    assert await completions(store) == 1
    events = [event for event in await store.events_after(0, 1000) if event.batch_id == FOX]
    assert events[-1].name == "batch.completed"


async def test_a_failed_run_that_is_tried_again_has_not_landed(store: Store, database: Database) -> None:
    await queue(store, 1)
    leased = await lease_one(store)
    await store.requeue(leased.lease, broken(), Again(0.0, charged=True))
    await store.unsend((await lease_one(store)).lease)
    assert (await status_of(store), await told(store)) == ("active", ["batch.created"])


# Another generation.


async def failed_batch(store: Store, count: int = 4) -> list[JobId]:
    """Complete: the first is done, the others have failed."""
    ids = await queue(store, count)
    leased = await lease(store, most=count)
    await land(store, leased[:1])
    await fall(store, leased[1:])
    assert await status_of(store) == "complete"
    return ids


async def _retry_batch(store: Store, ids: list[JobId]) -> int:
    return await store.retry_batch(FOX)


async def _retry_by_name(store: Store, ids: list[JobId]) -> int:
    return len(await store.retry(ids))


async def _wish_again(store: Store, ids: list[JobId]) -> int:
    return len(await store.wish_again([(each, None) for each in ids[1:]]))


AGAIN = {"batch": _retry_batch, "by-name": _retry_by_name, "wish": _wish_again}


@pytest.mark.parametrize("way", AGAIN)
async def test_a_retry_opens_one_new_generation_that_completes_once(store: Store, database: Database, way: str) -> None:
    ids = await failed_batch(store)
    assert await AGAIN[way](store, ids) == 3
    found = await batch_of(store)
    assert (found.status, found.generation, found.completed_at) == (BatchStatus.ACTIVE, 2, None)
    assert (found.pending, found.done) == (3, 1)
    leased = await lease(store, most=9)
    assert sorted(each.lease.job_id for each in leased) == ids[1:]
    await land(store, leased[:1])
    assert await status_of(store) == "collecting"
    await land(store, leased[1:])
    assert (await batch_of(store)).generation == 2
    assert await told(store) == ["batch.created", "batch.completed", "batch.completed"]


async def test_a_retry_before_the_batch_is_complete_is_of_the_same_generation(store: Store) -> None:
    ids = await queue(store, 2)
    await fall(store, [await lease_one(store)])
    assert await store.retry_batch(FOX) == 1
    await land(store, await lease(store, most=9))
    assert ((await batch_of(store)).generation, await completions(store)) == (1, 1)
    assert {(await job_of(store, each)).status for each in ids} == {JobStatus.DONE}


async def test_a_retry_with_nothing_to_retry_changes_nothing(store: Store, database: Database) -> None:
    await queue(store, 1)
    await land(store, await lease(store))
    before = all_that_is_there(database)
    assert await store.retry_batch(FOX) == 0
    assert await store.retry_batch("never") == 0
    assert all_that_is_there(database) == before


async def test_a_retried_member_has_a_fresh_start(store: Store) -> None:
    _, first, second, _ = await failed_batch(store)
    await store.retry([first])
    await store.cancel([first])
    assert await store.retry_batch(FOX, with_cancelled=True) == 3
    retried = [await job_of(store, each) for each in (first, second)]
    facts = {(job.status, job.error_trace, job.failure_class, job.retries_attempted, job.hold) for job in retried}
    assert facts == {(JobStatus.PENDING, None, None, 0, None)}


async def test_a_reset_by_hand_opens_a_new_generation_too(store: Store, database: Database) -> None:
    await failed_batch(store)
    database.by_hand(f"UPDATE jobs SET status = 'pending' WHERE batch_id = '{FOX}' AND status = 'failed'")
    assert ((await batch_of(store)).generation, await status_of(store)) == (2, "active")
    await land(store, await lease(store, most=9))
    assert await completions(store) == 2


async def test_a_member_that_comes_late_opens_a_new_generation(store: Store, database: Database) -> None:
    await failed_batch(store)
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index) "
        f"VALUES ('late', 'T2I', 'wf', 'pending', '{FOX}', 9)"
    )
    assert ((await batch_of(store)).generation, await status_of(store)) == (2, "active")
    await store.submit([wish("later", batch_id=FOX, batch_index=10)])
    assert (await batch_of(store)).generation == 2
    await land(store, await lease(store, most=9))
    assert (await status_of(store), await completions(store)) == ("complete", 2)


async def test_a_member_that_has_ended_when_it_comes_opens_nothing(store: Store, database: Database) -> None:
    await failed_batch(store)
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index) "
        f"VALUES ('late', 'T2I', 'wf', 'done', '{FOX}', 9)"
    )
    assert ((await batch_of(store)).generation, await status_of(store)) == (1, "complete")


async def test_a_wish_for_what_is_done_keeps_the_result_until_there_is_another(store: Store) -> None:
    (job_id,) = await queue(store, 1)
    await land(store, await lease(store))
    assert await store.wish_again([(job_id, None)], avoid_cache=True) == [job_id]
    job = await job_of(store, job_id)
    assert (job.status, job.outputs, job.failure_class) == (JobStatus.PENDING, ("fox_1_0.png",), "output")
    again = await lease_one(store)
    assert again.last_failure == "output"
    await store.complete(again.lease, ["new.png"], None)
    assert (await job_of(store, job_id)).outputs == ("new.png",)
    assert ((await batch_of(store)).generation, await completions(store)) == (2, 2)


async def test_a_wish_can_say_something_new(store: Store) -> None:
    (job_id,) = await queue(store, 1, inputs={"6.text": "a fox"}, metadata={"page": 1}, file_path="fox.png")
    await fall(store, await lease(store))
    changed = wish("ignored", template=GRAPH, inputs={"6.text": "ein Füchslein"}, metadata={"page": 2})
    assert await store.wish_again([(job_id, changed)]) == [job_id]
    job = await job_of(store, job_id)
    assert (job.inputs, job.metadata) == ('{"6.text":"ein Füchslein"}', '{"page":2}')
    assert (job.template_hash, job.file_path, job.config_name) == (GRAPH.hash, "fox.png", "fox_1_0")
    assert (job.failure_class, job.error_trace) == (None, None)
    assert await store.template(GRAPH.hash) == GRAPH


async def test_only_what_has_ended_can_be_wished_for_again(store: Store, database: Database) -> None:
    await queue(store, 2)
    running, waiting = await lease_one(store), (await store.jobs(status=JobStatus.PENDING))[0]
    before = all_that_is_there(database)
    changed = wish("ignored", inputs={"6.text": "no"})
    assert await store.wish_again([(running.lease.job_id, changed), (waiting.id, changed), (JobId(99), None)]) == []
    assert all_that_is_there(database) == before


async def test_a_wish_lets_go_of_a_prompt_of_the_run_before(store: Store) -> None:
    """Else the old prompt would be taken over, and its result be that of the new wish."""
    (job_id,) = await queue(store, 1)
    stale = await lease_one(store)
    await store.cancel([job_id])
    await store.wish_again([(job_id, wish("ignored", inputs={"6.text": "new"}))])
    assert await store.open_attempts() == []
    fresh = await lease_one(store)
    assert fresh.prompt_id != stale.prompt_id
    with pytest.raises(LeaseLost):
        await store.complete(stale.lease, ["stale.png"], None)


# Cancelled.


async def half_done(store: Store) -> list[Leased]:
    """One is done, one runs, one is in backoff, one waits."""
    await queue(store, 4)
    leased = await lease_of(store, FOX, most=3)
    await land(store, leased[:1])
    await store.requeue(leased[2].lease, broken(), Again(15.0, charged=True))
    return leased


async def test_cancelling_ends_what_has_not_ended(store: Store, database: Database) -> None:
    await queue(store, 2, "other")
    others = await lease(store, most=1)
    await half_done(store)
    database.clock.advance(5)
    before = await store.newest_event()
    assert await store.cancel_batch(FOX) == 3
    found = await batch_of(store)
    assert (found.status, found.done, found.failed, found.generation) == (BatchStatus.CANCELLED, 1, 3, 1)
    assert (found.reason, found.completed_at) == ("by request", database.clock.text())
    failed = await store.jobs(batch_id=FOX, status=JobStatus.FAILED)
    assert {job.failure_class for job in failed} == {"cancelled"}
    assert all("cancelled" in (job.error_trace or "") and FOX in (job.error_trace or "") for job in failed)
    assert {(job.worker_id, job.hold, job.next_attempt_at, job.needs_regeneration) for job in failed} == {
        (None, None, None, False)
    }
    events = await store.events_after(before)
    assert [event.name for event in events] == ["job.cancelled"] * 3 + ["batch.cancelled"]
    assert {event.failure_class for event in events[:3]} == {"cancelled"}
    assert await status_of(store, "other") == "active"
    await land(store, others)
    assert await store.held(WORKER) == frozenset()


async def test_a_cancelled_batch_runs_nothing_any_more_and_completes_no_more(store: Store, database: Database) -> None:
    await half_done(store)
    await store.cancel_batch(FOX)
    database.clock.advance(3600)
    assert await lease(store, most=9) == []
    assert await store.is_idle()
    assert await completions(store) == 0


@pytest.mark.parametrize("status", ["pending", "complete", "cancelled", "expired"])
async def test_what_has_ended_or_is_not_whole_is_not_cancelled(store: Store, database: Database, status: str) -> None:
    await half_done(store)
    database.by_hand(f"UPDATE batches SET status = '{status}'")
    before = all_that_is_there(database)
    assert await store.cancel_batch(FOX) is None
    assert await store.cancel_batch("never") is None
    assert all_that_is_there(database) == before


async def test_a_result_that_comes_after_the_cancel_changes_nothing_and_is_recorded(
    store: Store, database: Database
) -> None:
    _, running, _ = await half_done(store)
    await store.cancel_batch(FOX)
    before = all_that_is_there(database)

    def late(lease: Lease) -> list[Awaitable[object]]:
        return [
            store.complete(lease, ["late.png"], None),
            store.fail(lease, broken(), Over(FailureClass.EXECUTION)),
            store.requeue(lease, broken(), Again(0.0, charged=True)),
            store.refuse(lease, broken()),
            store.unsend(lease),
            store.claim_files(lease, ["late.png"], LEASE_SECONDS),
        ]

    for write in late(running.lease):
        with pytest.raises(LeaseLost):
            await write
    assert all_that_is_there(database) == before
    attempt = await open_attempt(store)
    assert (attempt.prompt_id, attempt.is_wanted) == (running.prompt_id, False)
    assert await store.adopt(attempt, "other", LEASE_SECONDS) is None
    assert await store.withdraw(attempt, "its result was discarded") == []
    (run,) = await store.attempts(running.lease.job_id)
    assert run.outcome == "cancelled"
    assert json.loads(run.error or "") == {"kind": "cancelled", "message": "its result was discarded"}
    assert (await status_of(store), await store.open_attempts()) == ("cancelled", [])


async def test_files_noted_for_a_run_that_was_cancelled_are_given_up(store: Store) -> None:
    await queue(store, 1)
    leased = await lease_one(store)
    await store.claim_files(leased.lease, ["half.png"], LEASE_SECONDS)
    await store.cancel_batch(FOX)
    assert await store.withdraw(await open_attempt(store), "gone") == ["half.png"]


async def test_retry_all_leaves_a_cancelled_batch_alone_and_asking_for_it_does_not(store: Store) -> None:
    await half_done(store)
    await store.cancel_batch(FOX)
    assert await store.retry_batch(FOX) == 0
    assert await status_of(store) == "cancelled"
    assert await store.retry_batch(FOX, with_cancelled=True) == 3
    found = await batch_of(store)
    assert (found.status, found.generation, found.reason, found.completed_at) == (BatchStatus.ACTIVE, 2, None, None)
    await land(store, [await take_over(store)])
    await land(store, await lease(store, most=9))
    assert await told(store) == ["batch.created", "batch.cancelled", "batch.completed"]


async def test_one_member_of_a_cancelled_batch_is_retried_by_name(store: Store) -> None:
    await half_done(store)
    await store.cancel_batch(FOX)
    _, _, third, fourth = await store.jobs(batch_id=FOX)
    assert await store.retry([fourth.id]) == [fourth.id]
    assert (await batch_of(store)).generation == 2
    (leased,) = await lease(store, most=9)
    await land(store, [leased])
    found = await batch_of(store)
    assert (found.status, found.done, found.failed, found.generation) == (BatchStatus.COMPLETE, 2, 2, 2)
    assert (await job_of(store, third.id)).failure_class == "cancelled"


# Expired.

GAP, EXPIRY = 10.0, 59.5


async def look(store: Store, database: Database, seconds: float, step: float = 5.0) -> list[str]:
    """Look at a batch that is being rendered for so many seconds; what has expired by then."""
    expired = await store.tick_batches([FOX], GAP, EXPIRY)
    for _ in range(round(seconds / step)):
        database.clock.advance(step)
        expired += await store.tick_batches([FOX], GAP, EXPIRY)
    return expired


async def test_a_batch_expires_when_nothing_lands_although_members_are_rendered(
    store: Store, database: Database
) -> None:
    await queue(store, 3)
    leased = await lease(store, most=2)
    await store.complete(leased[0].lease, ["a.png"], None)
    assert await look(store, database, 55) == []
    assert await status_of(store) == "collecting"
    before = await store.newest_event()
    assert await look(store, database, 5) == [FOX]
    found = await batch_of(store)
    assert (found.status, found.done, found.failed) == (BatchStatus.EXPIRED, 1, 2)
    assert "59.5 s" in (found.reason or "")
    assert "batch_expiry_seconds" in (found.reason or "")
    failed = await store.jobs(batch_id=FOX, status=JobStatus.FAILED)
    assert {(job.failure_class, job.needs_regeneration, job.worker_id) for job in failed} == {("timeout", True, None)}
    assert all(FOX in (job.error_trace or "") and "expired" in (job.error_trace or "") for job in failed)
    events = await store.events_after(before)
    assert [event.name for event in events] == ["job.failed", "job.failed", "batch.expired"]
    assert (events[-1].message, events[-1].batch_id) == (found.reason, FOX)
    assert await completions(store) == 0
    with pytest.raises(LeaseLost):
        await store.complete(leased[1].lease, ["late.png"], None)
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
    await store.requeue((await lease_one(store)).lease, broken(), Again(0.0, charged=True))
    assert await look(store, database, 10) == [FOX]


async def test_time_that_nobody_saw_does_not_count(store: Store, database: Database) -> None:
    await queue(store, 1)
    await look(store, database, 55)
    for _ in range(20):
        database.clock.advance(GAP + 1)
        assert await store.tick_batches([FOX], GAP, EXPIRY) == []
    assert await look(store, database, 5) == [FOX]


async def test_two_agents_that_look_at_the_same_time_count_it_once(store: Store, database: Database) -> None:
    other = database.open()
    await queue(store, 1)
    for _ in range(11):
        assert await store.tick_batches([FOX], GAP, EXPIRY) == []
        assert await other.tick_batches([FOX], GAP, EXPIRY) == []
        database.clock.advance(5)
    assert await other.tick_batches([FOX], GAP, EXPIRY) == []
    database.clock.advance(5)
    assert await store.tick_batches([FOX], GAP, EXPIRY) == [FOX]
    assert await other.tick_batches([FOX], GAP, EXPIRY) == []
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
    assert await store.tick_batches(["never", "other", FOX], GAP, EXPIRY) == []
    assert await look(store, database, 60) == [FOX]
    assert await status_of(store, "other") == "active"


async def test_the_clock_of_a_retried_batch_begins_anew(store: Store, database: Database) -> None:
    await queue(store, 2)
    await look(store, database, 60)
    assert await store.retry_batch(FOX) == 2
    assert ((await batch_of(store)).generation, (await batch_of(store)).reason) == (2, None)
    assert await look(store, database, 55) == []
    assert await look(store, database, 5) == [FOX]
    assert await told(store) == ["batch.created", "batch.expired", "batch.expired"]


async def test_the_clock_of_a_paused_batch_stands_still(store: Store, database: Database) -> None:
    """What is at a server runs on, and may take as long as it likes."""
    await queue(store, 2)
    await lease_one(store)
    await look(store, database, 30)
    await store.pause_batch(FOX)
    assert await look(store, database, 300) == []
    await store.resume_batch(FOX)
    assert await look(store, database, 25) == []
    assert await look(store, database, 5) == [FOX]


# Paused.


async def test_what_waits_in_a_paused_batch_stays_waiting_and_what_runs_runs_on(store: Store) -> None:
    await queue(store, 3)
    await queue(store, 1, "other")
    running = await lease_one(store)
    assert await store.pause_batch(FOX) is True
    assert await store.pause_batch(FOX) is False
    assert (await batch_of(store)).is_paused
    assert [each.batch_id for each in await lease(store, most=9)] == ["other"]
    await land(store, [running])
    assert await status_of(store) == "collecting"
    assert await store.resume_batch(FOX) is True
    assert await store.resume_batch(FOX) is False
    await land(store, await lease(store, most=9))
    found = await batch_of(store)
    assert (found.status, found.is_paused, await completions(store)) == (BatchStatus.COMPLETE, False, 1)


async def test_nobody_waits_for_a_paused_batch(store: Store) -> None:
    await queue(store, 3)
    await store.pause_batch(FOX)
    assert await store.is_idle()
    assert await store.is_batch_idle(FOX)
    await store.resume_batch(FOX)
    assert not await store.is_idle()
    assert not await store.is_batch_idle(FOX)


@pytest.mark.parametrize("status", ["pending", "complete", "cancelled", "expired"])
async def test_what_has_ended_or_is_not_whole_is_not_paused(store: Store, database: Database, status: str) -> None:
    await queue(store, 2)
    database.by_hand(f"UPDATE batches SET status = '{status}'")
    assert await store.pause_batch(FOX) is False
    assert await store.pause_batch("never") is False
    assert await store.resume_batch(FOX) is False
    assert await holds_of(store) == [None, None]


async def test_a_backoff_goes_on_where_it_was_when_the_batch_is_resumed(store: Store, database: Database) -> None:
    await queue(store, 2)
    first, second = await lease(store, most=2)
    await store.requeue(first.lease, broken(), Again(60.0, charged=True))
    await store.pause_batch(FOX)
    await store.requeue(second.lease, broken(), Again(15.0, charged=True))
    assert await holds_of(store) == ["paused", "paused"]
    database.clock.advance(30)
    assert await lease(store, most=9) == []
    await store.resume_batch(FOX)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [second.lease.job_id]
    database.clock.advance(30)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [first.lease.job_id]


async def _requeue(store: Store, database: Database, leased: Leased) -> None:
    await store.requeue(leased.lease, broken(), Again(0.0, charged=True))


async def _unsend(store: Store, database: Database, leased: Leased) -> None:
    await store.unsend(leased.lease)


async def _release(store: Store, database: Database, leased: Leased) -> None:
    await store.release(WORKER)


async def _put_back(store: Store, database: Database, leased: Leased) -> None:
    await store.put_back_orphans(everybody)


async def _fail_and_retry(store: Store, database: Database, leased: Leased) -> None:
    await _fail(store, database, leased)
    await store.retry([leased.lease.job_id])


async def _fail_and_retry_batch(store: Store, database: Database, leased: Leased) -> None:
    await _fail(store, database, leased)
    await store.retry_batch(FOX)


async def _complete_and_wish(store: Store, database: Database, leased: Leased) -> None:
    await _complete(store, database, leased)
    await store.wish_again([(leased.lease.job_id, None)])


async def _reset_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand("UPDATE jobs SET status = 'pending', worker_id = NULL WHERE status = 'processing'")


WAITS_AGAIN: dict[str, Landing] = {
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
    await store.pause_batch(FOX)
    await WAITS_AGAIN[way](store, database, leased)
    assert await holds_of(store) == ["paused", "paused"]
    assert await lease(store, most=9) == []
    await store.resume_batch(FOX)
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
    await store.pause_batch(FOX)
    if by_hand:
        database.by_hand(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index) "
            f"VALUES ('late', 'T2I', 'wf', 'pending', '{FOX}', 9)"
        )
    else:
        await store.submit([wish("late", batch_id=FOX, batch_index=9)])
    assert await lease(store, most=9) == []
    await store.resume_batch(FOX)
    assert len(await lease(store, most=9)) == 2


async def test_a_run_of_a_paused_batch_is_taken_over(store: Store) -> None:
    await queue(store, 2)
    await lease_one(store)
    await store.pause_batch(FOX)
    await store.release(WORKER)
    await land(store, [await take_over(store)])
    assert (await batch_of(store)).done == 1


@pytest.mark.parametrize("ending", ["land", "cancel"])
async def test_a_batch_that_ends_is_not_paused_in_its_next_generation(store: Store, ending: str) -> None:
    ids = await queue(store, 1)
    leased = await lease_one(store)
    await store.pause_batch(FOX)
    await (fall(store, [leased]) if ending == "land" else store.cancel_batch(FOX))
    assert not (await batch_of(store)).is_paused
    if ending == "cancel":
        await store.withdraw(await open_attempt(store), "")
    await store.retry(ids)
    assert len(await lease(store, most=9)) == 1


async def test_cancelling_a_paused_batch_ends_it(store: Store) -> None:
    await queue(store, 3)
    await store.pause_batch(FOX)
    assert await store.cancel_batch(FOX) == 3
    assert (await status_of(store), await holds_of(store)) == ("cancelled", [None] * 3)


# Reserved for whoever works off the batch by name.


async def test_reserved_members_are_for_whoever_names_their_batch(store: Store, database: Database) -> None:
    await queue(store, 2, reserved=True)
    database.by_hand("UPDATE jobs SET hold = NULL, priority = 1")
    await queue(store, 1, "other")
    assert [each.batch_id for each in await lease(store, most=9)] == ["other"]
    leased = await lease_of(store, FOX, most=9)
    assert [each.batch_id for each in leased] == [FOX, FOX]
    assert {attempt.is_reserved for attempt in await store.open_attempts() if attempt.batch_id == FOX} == {True}
    assert [each.is_reserved for each in await store.open_attempts() if each.batch_id == "other"] == [False]


async def test_whoever_works_a_batch_off_leaves_the_rest_of_the_queue_alone(store: Store) -> None:
    await queue(store, 2)
    await submit_one(store, "urgent", priority=1)
    assert [each.batch_id for each in await lease_of(store, FOX, most=9)] == [FOX, FOX]
    assert await lease_of(store, "never", most=9) == []


@pytest.mark.parametrize("hold", ["NULL", "'backoff'", "'burst'", "'filling'"])
@pytest.mark.parametrize("status", ["pending", "processing"])
async def test_others_do_not_wait_for_reserved_members(
    store: Store, database: Database, hold: str, status: str
) -> None:
    await queue(store, 2, reserved=True)
    database.by_hand(f"UPDATE jobs SET hold = {hold}, status = '{status}'")
    assert await store.is_idle()
    assert await store.is_batch_idle(FOX) is (hold == "'burst'" and status == "pending")


@pytest.mark.parametrize(
    ("hold", "idle"), [("NULL", False), ("'backoff'", False), ("'turn'", False), ("'burst'", True), ("'paused'", True)]
)
async def test_what_may_run_soon_is_waited_for(store: Store, database: Database, hold: str, idle: bool) -> None:
    await queue(store, 2)
    database.by_hand(f"UPDATE jobs SET hold = {hold}")
    assert (await store.is_idle(), await store.is_batch_idle(FOX)) == (idle, idle)
    assert await store.is_batch_idle("never") is True


# Grids.


async def complete_with_grid(store: Store, batch_id: str = FOX) -> list[JobId]:
    ids = await queue(store, 1, batch_id, wants_grid=True)
    await land(store, await lease_of(store, batch_id))
    return ids


async def test_a_grid_is_due_when_the_batch_is_complete_and_not_before(store: Store) -> None:
    await queue(store, 1, "plain")
    await queue(store, 1, wants_grid=True)
    assert await store.claim_grid(WORKER, nobody) is None
    await land(store, await lease(store, most=9))
    assert (await batch_of(store)).is_grid_due
    assert not await store.is_idle()
    assert not await store.is_batch_idle(FOX)
    assert await store.claim_grid(WORKER, nobody) == (FOX, 1)
    assert not await store.is_idle()
    assert await store.settle_grid(FOX, WORKER, 1, grid="grid.png") is True
    found = await batch_of(store)
    assert (found.grid, found.grid_problem, found.is_grid_due) == ("grid.png", None, False)
    assert await store.is_idle()
    assert await store.is_batch_idle(FOX)
    assert await store.claim_grid(WORKER, nobody) is None


@pytest.mark.parametrize("end", ["cancel", "expire"])
async def test_a_batch_that_was_given_up_has_no_grid_due(store: Store, database: Database, end: str) -> None:
    await queue(store, 2, wants_grid=True)
    await (store.cancel_batch(FOX) if end == "cancel" else look(store, database, 60))
    assert (await batch_of(store)).status.has_ended
    assert await store.claim_grid(WORKER, nobody) is None
    assert await store.is_idle()


async def test_of_many_workers_one_makes_the_grid(store: Store, database: Database) -> None:
    stores = [store, database.open(), database.open()]
    await complete_with_grid(store)
    claims = await asyncio.gather(
        *(each.claim_grid(f"{place}-{number}", nobody) for number in range(5) for place, each in enumerate(stores))
    )
    assert [claim for claim in claims if claim is not None] == [(FOX, 1)]


async def test_grids_of_several_batches_are_made_by_several_workers(store: Store) -> None:
    for name in "abc":
        await complete_with_grid(store, name)
    claims = [await store.claim_grid(worker, nobody) for worker in ("one", "two", "three", "four")]
    assert sorted(claim for claim in claims if claim is not None) == [("a", 1), ("b", 1), ("c", 1)]
    assert claims[3] is None
    await store.release_grids("two")
    assert await store.claim_grid("four", nobody, "c") is None
    assert await store.claim_grid("four", nobody) == claims[1]


async def test_the_claim_of_a_dead_worker_is_taken_and_its_late_word_does_not_count(store: Store) -> None:
    await complete_with_grid(store)
    await store.claim_grid("dead", nobody)
    assert await store.claim_grid("alive", nobody) is None
    assert await store.claim_grid("alive", lambda worker: worker == "dead") == (FOX, 1)
    assert await store.settle_grid(FOX, "dead", 1, grid="old.png") is False
    assert (await batch_of(store)).grid is None
    assert await store.settle_grid(FOX, "alive", 1, grid="new.png") is True
    assert (await batch_of(store)).grid == "new.png"


async def test_a_grid_is_due_again_after_the_generation_that_came_meanwhile(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.claim_grid(WORKER, nobody)
    await store.wish_again([(ids[0], None)])
    assert await store.settle_grid(FOX, WORKER, 1, grid="first.png") is True
    assert await store.claim_grid(WORKER, nobody) is None
    await land(store, await lease(store))
    assert (await batch_of(store)).is_grid_due
    assert (await batch_of(store)).grid == "first.png"
    assert await store.claim_grid(WORKER, nobody) == (FOX, 2)
    await store.settle_grid(FOX, WORKER, 2, grid="second.png")
    assert await store.claim_grid(WORKER, nobody) is None
    assert (await batch_of(store)).grid == "second.png"


async def test_a_grid_begun_before_a_generation_and_settled_after_it_stands_for_the_one_before(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.claim_grid(WORKER, nobody)
    await store.wish_again([(ids[0], None)])
    await land(store, await lease(store))
    assert await store.claim_grid("other", nobody) is None
    await store.settle_grid(FOX, WORKER, 1, grid="first.png")
    assert await store.claim_grid("other", nobody) == (FOX, 2)


async def test_a_grid_that_cannot_be_made_is_said_once_and_not_tried_for_ever(store: Store) -> None:
    await complete_with_grid(store)
    await store.claim_grid(WORKER, nobody)
    await store.settle_grid(FOX, WORKER, 1, problem="no room: free some")
    found = await batch_of(store)
    assert (found.grid, found.grid_problem, found.is_grid_due) == (None, "no room: free some", False)
    *_, alert = await store.events_after(0)
    assert (alert.name, alert.batch_id, alert.message) == ("alert.grid", FOX, "no room: free some")
    assert await store.claim_grid(WORKER, nobody) is None
    assert await store.is_idle()


async def test_a_grid_made_by_hand_is_the_one_that_was_due(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.note_grid(FOX, "mine.png")
    assert ((await batch_of(store)).grid, await store.claim_grid(WORKER, nobody)) == ("mine.png", None)
    await store.wish_again([(ids[0], None)])
    await store.note_grid(FOX, "half.png")
    await land(store, await lease(store))
    assert await store.claim_grid(WORKER, nobody) == (FOX, 2)


# What is told of members.


async def test_events_of_members_name_their_batch_and_those_of_others_none(store: Store) -> None:
    await queue(store, 1)
    await submit_one(store, "single")
    by_name = {(event.config_name, event.name): event for event in await store.events_after(0)}
    assert by_name["fox_1_0", "job.submitted"].batch_id == FOX
    assert by_name["single", "job.submitted"].batch_id is None
    assert {(event.book_id, event.page) for event in by_name.values()} == {(None, None)}


async def test_past_durations_are_those_of_the_same_workflow(store: Store, database: Database) -> None:
    await queue(store, 3, template=GRAPH)
    await submit_one(store, "other")
    for seconds, leased in enumerate(await lease(store, most=4), start=1):
        await store.complete(leased.lease, [], float(seconds))
        database.clock.advance(1)
    assert await store.past_durations(GRAPH.hash) == [3.0, 2.0, 1.0]
    assert await store.past_durations("unknown") == []


async def test_a_batch_is_worked_off_by_priority_and_then_by_age(store: Store) -> None:
    ids = await queue(store, 4)
    await store.set_priority(ids[2], 1)
    leased = [(await lease_of(store, FOX))[0].lease.job_id for _ in ids]
    assert leased == [ids[2], ids[0], ids[1], ids[3]]
    assert all(before < after for before, after in pairwise(leased[1:]))
    assert {attempt.server for attempt in await store.open_attempts()} == {SERVER}
