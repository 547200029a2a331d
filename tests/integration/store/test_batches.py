"""Batches: filled unseen, and completed once in the transaction of the last member, whoever lands it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from comfyui_agent.domain.batches import BatchKind, BatchStatus, NewBatch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.job_files import ReadFile
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import batches, outcomes
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import BatchTaken, LeaseLost
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store
from support.store_batches import (
    CREATOR,
    FOX,
    all_that_is_there,
    batch_of,
    completions,
    fill,
    holds_of,
    land,
    lease_of,
    queue,
    status_of,
    told,
)
from support.stores import (
    HOST,
    SERVER,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    register,
    submit_one,
    take_over,
    wish,
)

GRAPH = Template.of({"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}}})

Landing = Callable[[Store, Database, Leased], Awaitable[object]]


# Filling.


async def test_a_batch_that_is_being_filled_runs_nothing_and_is_waited_for(store: Store) -> None:
    await fill(store)
    assert await lease(store, most=9) == []
    assert await lease_of(store, FOX, most=9) == []
    assert not await store.run(ops.is_queue_idle)
    assert not await store.run(ops.is_batch_idle, FOX)
    assert (await status_of(store), await told(store)) == ("pending", [])
    await store.run(ops.open_batch, FOX)
    assert (await status_of(store), await told(store)) == ("active", ["batch.created"])
    assert len(await lease(store, most=9)) == 3


async def test_opening_a_batch_again_does_nothing(store: Store) -> None:
    await queue(store)
    await store.run(ops.pause_batch, FOX)
    await store.run(ops.open_batch, FOX)
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
        await store.run(ops.create_batch, NewBatch(FOX, "again", BatchKind.BOOK), CREATOR)
    assert all_that_is_there(database) == before


@pytest.mark.parametrize("names", [["new", "taken"], ["twice", "twice"]])
async def test_a_part_with_a_name_that_is_taken_is_refused_whole(
    store: Store, database: Database, names: list[str]
) -> None:
    await submit_one(store, "taken")
    await fill(store)
    before = all_that_is_there(database)
    with pytest.raises(BatchTaken, match=names[1]):
        await store.run(ops.fill_batch, [wish(name, batch_id=FOX, template=GRAPH) for name in names])
    assert all_that_is_there(database) == before


async def test_an_unfinished_submission_of_a_dead_process_leaves_nothing(store: Store, database: Database) -> None:
    await queue(store, batch_id="whole")
    await register(store, "another-door")
    await fill(store, batch_id="living", creator="another-door")
    others = all_that_is_there(database)
    await fill(store, 7)
    while await store.run(ops.discard_unfinished, HOST):
        pass
    left = all_that_is_there(database)
    for table in ("jobs", "batches", "attempts", "job_counts"):
        assert left[table] == others[table]
    await store.run(ops.open_batch, "living")
    assert len(await lease(store, most=16)) == 6


async def test_a_batch_that_nobody_is_said_to_fill_is_left_alone(store: Store) -> None:
    await fill(store, creator=None)
    assert await store.run(ops.discard_unfinished, HOST) == 0
    assert (await batch_of(store)).total == 3


async def test_many_jobs_of_a_dead_submitter_are_removed_in_parts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "DISCARDED_AT_ONCE", 40)
    for number in range(3):
        await fill(store, 50, f"batch_{number}")
    removed = []
    while part := await store.run(ops.discard_unfinished, HOST):
        removed.append(part)
    assert sum(removed) == 3 * 51
    assert max(removed) <= 41
    assert (await store.run(ops.newest_batches), await store.run(ops.list_jobs)) == ([], [])


@pytest.mark.slow
async def test_a_hundred_thousand_jobs_of_a_dead_submitter_vanish_while_others_work(store: Store) -> None:
    await fill(store, 100_000)
    await queue(store, 50, "small")
    parts = 0
    while await store.run(ops.discard_unfinished, HOST):
        parts += 1
        await land(store, await lease(store))
    assert parts >= 100_000 / batches.DISCARDED_AT_ONCE
    assert await store.run(ops.find_batch, FOX) is None
    assert (await batch_of(store, "small")).done == parts
    assert (await store.run(ops.count_jobs)).pending == 50 - parts


async def test_a_member_that_was_cancelled_vanishes_with_a_batch_that_never_was(store: Store) -> None:
    first, *_ = await fill(store)
    await store.run(ops.cancel_jobs, [first])
    while await store.run(ops.discard_unfinished, HOST):
        pass
    assert await store.run(ops.list_jobs) == []


async def test_a_member_that_was_cancelled_and_retried_still_waits_until_the_batch_is_whole(store: Store) -> None:
    first, *_ = await fill(store)
    await store.run(ops.cancel_jobs, [first])
    await store.run(ops.retry_jobs, [first])
    assert await lease(store, most=9) == []
    await store.run(ops.open_batch, FOX)
    assert len(await lease(store, most=9)) == 3


async def test_a_batch_is_complete_at_once_if_all_its_members_failed_before_it_was_whole(store: Store) -> None:
    ids = await fill(store)
    await store.run(ops.cancel_jobs, ids)
    assert await status_of(store) == "pending"
    await store.run(ops.open_batch, FOX)
    assert await told(store) == ["batch.created", "batch.completed"]
    found = await batch_of(store)
    assert (found.status, found.generation, found.failed) == (BatchStatus.COMPLETE, 1, 3)
    assert await store.run(ops.is_queue_idle)


async def test_jobs_that_are_there_already_are_made_a_batch_in_the_order_they_are_named(store: Store) -> None:
    ids = [await submit_one(store, name) for name in "abc"]
    (done,) = await lease(store)
    await land(store, [done])
    other = await queue(store, 1, "other")
    assert await store.run(ops.group_jobs, NewBatch(FOX, "fox", BatchKind.FILES), [ids[2], ids[0], *other]) == 2
    found = await batch_of(store)
    assert (found.kind, found.status, found.total, found.done) == (BatchKind.FILES, BatchStatus.ACTIVE, 2, 1)
    assert [job.config_name async for job in ops.batch_members(store, FOX)] == ["c", "a"]
    assert (await batch_of(store, "other")).total == 1
    await land(store, await lease(store, most=9))
    assert (await status_of(store), await told(store)) == ("complete", ["batch.created", "batch.completed"])


async def test_jobs_that_are_made_a_batch_wait_and_run_as_before(store: Store, database: Database) -> None:
    ids = [await submit_one(store, name) for name in "abc"]
    waiting, running = await lease(store, most=2)
    await store.run(ops.requeue_job, waiting.lease, broken(), Retry(60.0, charged=True))
    await store.run(ops.group_jobs, NewBatch(FOX, "fox", BatchKind.FILES), ids)
    assert [each.lease.job_id for each in await lease(store, most=9)] == [ids[2]]
    await land(store, [running])
    assert await status_of(store) == "collecting"


async def test_jobs_that_have_all_ended_are_a_batch_that_is_complete(store: Store) -> None:
    job_id = await submit_one(store)
    await land(store, await lease(store))
    await store.run(ops.group_jobs, NewBatch(FOX, "fox", BatchKind.FILES), [job_id])
    assert await told(store) == ["batch.created", "batch.completed"]


# Progress.


async def test_a_batch_says_what_its_members_are(store: Store, database: Database) -> None:
    ids = await queue(store, 5, wants_grid=True)
    leased = await lease(store, most=3)
    await land(store, leased[:1])
    await store.run(ops.cancel_jobs, [ids[4]])
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
    assert [batch.id for batch in await store.run(ops.newest_batches)] == ["c", "b", "a"]
    assert [batch.id for batch in await store.run(ops.newest_batches, kind=BatchKind.SWEEP)] == ["c", "a"]
    assert [batch.id for batch in await store.run(ops.newest_batches, limit=1)] == ["c"]
    assert await store.run(ops.find_batch, "never") is None


async def test_all_members_can_be_gone_through_in_their_order(store: Store) -> None:
    ids = await queue(store, 2345)
    await queue(store, 3, "other")
    await store.run(ops.set_priority, ids[2000], 1)
    assert [job.id async for job in ops.batch_members(store, FOX)] == ids
    assert [job.id async for job in ops.batch_members(store, "never")] == []


# The end.


async def _complete(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.complete_job, leased.lease, ["a.png"], None)


async def _fail(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))


async def _refuse(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.refuse_job, leased.lease, broken(FailureClass.INVALID))


async def _cancel(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.cancel_jobs, [leased.lease.job_id])


async def _cancel_waiting(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    await store.run(ops.cancel_jobs, [leased.lease.job_id])


async def _delete(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"DELETE FROM jobs WHERE id = {leased.lease.job_id}")


async def _delete_waiting(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.return_unsent, leased.lease)
    database.by_hand(f"DELETE FROM jobs WHERE id = {leased.lease.job_id}")


async def _done_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"UPDATE jobs SET status = 'done' WHERE id = {leased.lease.job_id}")


async def _failed_by_hand(store: Store, database: Database, leased: Leased) -> None:
    database.by_hand(f"UPDATE jobs SET status = 'failed' WHERE id = {leased.lease.job_id}")


async def _next_worker(store: Store, database: Database, leased: Leased) -> None:
    await store.run(ops.release_jobs, WORKER)
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
async def test_the_last_member_completes_the_batch_once(store: Store, database: Database, ending: str) -> None:
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
async def test_the_completion_is_reported_after_the_end_of_the_last_member(
    store: Store, database: Database, ending: str
) -> None:
    await queue(store, 1)
    (last,) = await lease(store)
    await ENDINGS[ending](store, database, last)
    *_, before, newest = await store.run(ops.events_after, 0)
    assert (newest.name, newest.batch_id, newest.job_id) == ("batch.completed", FOX, None)
    assert (before.name, before.job_id) == (f"job.{TELLING[ending]}", last.lease.job_id)
    assert before.batch_id == FOX


async def test_a_job_file_that_turns_bad_is_reported_before_the_completion_of_its_batch(store: Store) -> None:
    source = "jobs/processing/image/fox.yaml"
    await store.run(ops.file_jobs, [ReadFile(wish("fox.yaml", source=source, digest="good"))])
    (job,) = await store.run(ops.list_jobs)
    await store.run(ops.group_jobs, NewBatch(FOX, "fox", BatchKind.FILES), [job.id])
    await store.run(
        ops.file_jobs, [ReadFile(wish("fox.yaml", source=source, digest="bad"), problem="line 3: what is this")]
    )
    names = [event.name for event in await store.run(ops.events_after, 0)]
    assert names[-2:] == ["job.failed", "batch.completed"]
    assert await completions(store) == 1


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
    await store.run(ops.cancel_jobs, ids)
    await store.run(ops.open_batch, FOX)
    assert (await status_of(store), await completions(store)) == ("complete", 1)
    assert (await batch_of(store)).generation == 1


@pytest.mark.parametrize("left", ["pending", "processing"])
async def test_a_member_that_is_deleted_while_others_are_left_completes_nothing(
    store: Store, database: Database, left: str
) -> None:
    ids = await queue(store, 3)
    await land(store, await lease(store))
    if left == "processing":
        await lease(store, most=2)
    database.by_hand(f"DELETE FROM jobs WHERE id = {ids[1]}")
    assert (await status_of(store), await completions(store)) == ("collecting", 0)
    database.by_hand(f"DELETE FROM jobs WHERE id = {ids[2]}")
    assert (await status_of(store), await completions(store)) == ("complete", 1)


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
        outcomes.complete_job(session, leased.lease, ["a.png"], None)
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
    landing = [
        each.run(ops.complete_job, one.lease, ["a"], None)
        for each, mine in zip(stores, leased, strict=True)
        for one in mine
    ]
    cancelling = [each.run(ops.cancel_jobs, ids[10:]) for each in stores]
    done = await asyncio.gather(*landing, *cancelling, return_exceptions=True)
    assert {type(answer) for answer in done} <= {list, LeaseLost}
    found = await batch_of(store)
    assert (found.status, found.generation, found.ended) == (BatchStatus.COMPLETE, 1, 30)
    assert await completions(store) == 1
    events = [event for event in await store.run(ops.events_after, 0, 1000) if event.batch_id == FOX]
    assert events[-1].name == "batch.completed"


async def test_a_failed_run_that_is_tried_again_has_not_landed(store: Store, database: Database) -> None:
    await queue(store, 1)
    leased = await lease_one(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True))
    await store.run(ops.return_unsent, (await lease_one(store)).lease)
    assert (await status_of(store), await told(store)) == ("active", ["batch.created"])


# Reserved for whoever works off the batch by name.


async def test_reserved_members_are_leased_only_with_their_batch(store: Store, database: Database) -> None:
    await queue(store, 2, reserved=True)
    database.by_hand("UPDATE jobs SET hold = NULL, priority = 1")
    await queue(store, 1, "other")
    assert [each.batch_id for each in await lease(store, most=9)] == ["other"]
    leased = await lease_of(store, FOX, most=9)
    assert [each.batch_id for each in leased] == [FOX, FOX]
    assert {attempt.is_reserved for attempt in await store.run(ops.open_attempts) if attempt.batch_id == FOX} == {True}
    assert [each.is_reserved for each in await store.run(ops.open_attempts) if each.batch_id == "other"] == [False]


async def test_working_a_batch_off_leaves_the_rest_of_the_queue_alone(store: Store) -> None:
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
    assert await store.run(ops.is_queue_idle)
    assert await store.run(ops.is_batch_idle, FOX) is (hold == "'burst'" and status == "pending")


@pytest.mark.parametrize(
    ("hold", "idle"), [("NULL", False), ("'backoff'", False), ("'turn'", False), ("'burst'", True), ("'paused'", True)]
)
async def test_what_may_run_soon_is_waited_for(store: Store, database: Database, hold: str, idle: bool) -> None:
    await queue(store, 2)
    database.by_hand(f"UPDATE jobs SET hold = {hold}")
    assert (await store.run(ops.is_queue_idle), await store.run(ops.is_batch_idle, FOX)) == (idle, idle)
    assert await store.run(ops.is_batch_idle, "never") is True


# What is told of members.


async def test_events_of_members_name_their_batch_and_those_of_others_none(store: Store) -> None:
    await queue(store, 1)
    await submit_one(store, "single")
    by_name = {(event.config_name, event.name): event for event in await store.run(ops.events_after, 0)}
    assert by_name["fox_1_0", "job.submitted"].batch_id == FOX
    assert by_name["single", "job.submitted"].batch_id is None
    assert {(event.book_id, event.page) for event in by_name.values()} == {(None, None)}


async def test_past_durations_are_those_of_the_same_workflow(store: Store, database: Database) -> None:
    await queue(store, 3, template=GRAPH)
    await submit_one(store, "other", workflow_id="another")
    for seconds, leased in enumerate(await lease(store, most=4), start=1):
        await store.run(ops.complete_job, leased.lease, [], float(seconds))
        database.clock.advance(1)
    assert await store.run(ops.past_durations, "wf_realistic_portrait") == [3.0, 2.0, 1.0]
    assert await store.run(ops.past_durations, "unknown") == []


async def test_a_batch_is_worked_off_by_priority_and_then_by_age(store: Store) -> None:
    ids = await queue(store, 4)
    await store.run(ops.set_priority, ids[2], 1)
    leased = [(await lease_of(store, FOX))[0].lease.job_id for _ in ids]
    assert leased == [ids[2], ids[0], ids[1], ids[3]]
    assert all(before < after for before, after in pairwise(leased[1:]))
    assert {attempt.server for attempt in await store.run(ops.open_attempts)} == {SERVER}
