"""How a run ends, and what each ending leaves behind: in the job, in its attempts and in the events."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from comfyui_agent.domain.events import Event
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.retry_policy import GiveUp, Retry, Tally
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import FileTaken
from comfyui_agent.store.records import Digest
from comfyui_agent.store.store import Store
from support.stores import (
    LEASE_SECONDS,
    SERVER,
    Database,
    broken,
    everything,
    lease_one,
    removed,
    submit_and_lease,
    submit_one,
)


async def the_job(store: Store, name: str = "knight.yaml") -> Job:
    job = await store.run(ops.find_job, name)
    assert job is not None
    return job


async def last_event(store: Store) -> Event:
    return (await store.run(ops.events_after, 0))[-1]


async def test_a_completed_job_is_done_with_its_files_and_how_long_it_took(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.clock.advance(2.5)
    assert await store.run(ops.complete_job, leased.lease, ["ä/a.png", "ä/a_2.png"], None) == []
    job = await the_job(store)
    assert (job.status, job.outputs, job.duration) == ("done", ("ä/a.png", "ä/a_2.png"), pytest.approx(2.5, abs=0.002))
    assert (job.end_time, job.worker_id, job.lease_expires_at) == (database.clock.text(), None, None)
    assert (job.run_count, job.retries_attempted, job.error_trace, job.failure_class) == (1, 0, None, None)
    (attempt,) = await store.run(ops.list_attempts, job.id)
    assert (attempt.outcome, attempt.error, attempt.ended_at) == ("done", None, database.clock.text())
    event = await last_event(store)
    assert (event.name, event.job_id, event.config_name) == ("job.done", job.id, "knight.yaml")
    assert (event.prompt_id, event.server, event.duration_sec) == (
        leased.prompt_id,
        SERVER,
        pytest.approx(2.5, abs=0.002),
    )
    assert await store.run(ops.owned_prompts) == frozenset()


async def test_a_duration_that_was_measured_is_kept_as_measured(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.clock.advance(60)
    await store.run(ops.complete_job, leased.lease, [], 1.25)
    assert (await the_job(store)).duration == 1.25
    assert (await last_event(store)).duration_sec == 1.25


async def test_a_success_after_failures_forgets_them_in_the_job_and_keeps_them_in_its_attempts(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True, strike=True), avoid_server=True)
    again = await lease_one(store, server="http://other:8188")
    await store.run(ops.complete_job, again.lease, ["a.png"], 1.0)
    job = await the_job(store)
    assert (job.error_trace, job.failure_class, job.strikes, job.needs_regeneration) == (None, None, 0, False)
    assert (job.run_count, job.retries_attempted, job.server) == (2, 1, "http://other:8188")
    assert [(attempt.number, attempt.outcome) for attempt in await store.run(ops.list_attempts, job.id)] == [
        (1, "execution"),
        (2, "done"),
    ]


async def test_a_charged_retry_counts_and_waits(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    failure = broken(
        FailureClass.OOM,
        "out of memory",
        server=SERVER,
        prompt_id=leased.prompt_id,
        node_id="3",
        node_type="KSampler",
        traceback=("line 1\n", "line 2\n"),
    )
    await store.run(ops.requeue_job, leased.lease, failure, Retry(15.0, charged=True))
    job = await the_job(store)
    assert (job.status, job.retries_attempted, job.run_count, job.strikes) == ("pending", 1, 1, 0)
    assert (job.hold, job.failure_class, job.error_trace) == ("backoff", "oom", failure.trace())
    assert (job.worker_id, job.lease_expires_at, job.needs_regeneration) == (None, None, False)
    (attempt,) = await store.run(ops.list_attempts, job.id)
    assert attempt.outcome == "oom"
    assert json.loads(attempt.error or "") == {
        "kind": "oom",
        "message": "out of memory",
        "server": SERVER,
        "prompt_id": leased.prompt_id,
        "node_id": "3",
        "node_type": "KSampler",
        "traceback": ["line 1\n", "line 2\n"],
    }
    event = await last_event(store)
    assert (event.name, event.failure_class, event.message) == ("job.retry", "oom", "out of memory")
    database.clock.advance(15.0)
    assert job.next_attempt_at == database.clock.text()


async def test_a_retry_that_is_not_the_jobs_fault_is_not_charged_and_may_count_as_a_crash(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(
        ops.requeue_job, leased.lease, broken(FailureClass.SERVER_LOST), Retry(0.0, charged=False, strike=True)
    )
    job = await the_job(store)
    assert (job.retries_attempted, job.strikes, job.hold, job.next_attempt_at) == (0, 1, None, None)
    again = await lease_one(store)
    assert again.tally == Tally(retries_attempted=0, strikes=1)
    assert (await the_job(store)).run_count == 2


async def test_a_failed_job_says_why_and_when(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.clock.advance(4)
    await store.run(
        ops.fail_job, leased.lease, broken(FailureClass.INVALID), GiveUp(FailureClass.INVALID, needs_regeneration=True)
    )
    job = await the_job(store)
    assert (job.status, job.failure_class, job.error_trace) == ("failed", "invalid", "invalid: boom")
    assert (job.needs_regeneration, job.end_time, job.duration) == (
        True,
        database.clock.text(),
        pytest.approx(4, abs=0.002),
    )
    assert (job.worker_id, job.lease_expires_at, job.next_attempt_at, job.hold) == (None, None, None, None)
    assert (job.retries_attempted, job.run_count) == (0, 1)
    (attempt,) = await store.run(ops.list_attempts, job.id)
    assert (attempt.outcome, json.loads(attempt.error or "")["message"]) == ("invalid", "boom")
    event = await last_event(store)
    assert (event.name, event.failure_class, event.duration_sec) == (
        "job.failed",
        "invalid",
        pytest.approx(4, abs=0.002),
    )
    assert await store.run(ops.failures_since, event.id - 1) == 1
    assert await store.run(ops.failures_since, event.id) == 0


async def test_poison_is_named_in_the_job_and_raises_an_alert(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.fail_job, leased.lease, broken(FailureClass.SERVER_LOST), GiveUp(FailureClass.POISON))
    job = await the_job(store)
    assert (job.failure_class, job.strikes) == ("poison", 1)
    assert (await store.run(ops.list_attempts, job.id))[0].outcome == "server_lost"
    assert [event.name for event in await store.run(ops.events_after, 0)][-2:] == ["job.failed", "alert.poison"]


async def test_a_job_that_was_never_sent_is_as_if_it_had_not_been_leased(store: Store) -> None:
    await submit_one(store)
    before = await the_job(store)
    leased = await lease_one(store)
    await store.run(ops.return_unsent, leased.lease)
    assert await the_job(store) == replace(before, fence=1)
    assert await store.run(ops.list_attempts, before.id) == []
    assert await store.run(ops.owned_prompts) == frozenset()
    assert (await lease_one(store)).lease.fence > leased.lease.fence


async def test_a_job_that_cannot_be_made_into_a_prompt_fails_without_a_run(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.refuse_job, leased.lease, broken(FailureClass.INVALID, "no such workflow"))
    job = await the_job(store)
    assert (job.status, job.failure_class, job.error_trace) == ("failed", "invalid", "invalid: no such workflow")
    assert (job.run_count, job.needs_regeneration, job.end_time) == (0, True, database.clock.text())
    assert (job.worker_id, job.prompt_id) == (None, None)
    assert await store.run(ops.list_attempts, job.id) == []
    event = await last_event(store)
    assert (event.name, event.failure_class, event.message) == ("job.failed", "invalid", "no such workflow")


@pytest.mark.parametrize("how", ["requeue", "fail", "refuse"])
async def test_endless_texts_of_a_server_are_cut(store: Store, database: Database, how: str) -> None:
    leased = await submit_and_lease(store)
    failure = broken(message="x" * 300_000, traceback=("y" * 300_000,), details=("z" * 300_000,))
    match how:
        case "requeue":
            await store.run(ops.requeue_job, leased.lease, failure, Retry(0.0, charged=True))
        case "fail":
            await store.run(ops.fail_job, leased.lease, failure, GiveUp(FailureClass.EXECUTION))
        case _:
            await store.run(ops.refuse_job, leased.lease, failure)
    stored = everything(database)
    longest = {
        f"{table}.{column}": len(value)
        for table, rows in stored.items()
        for row in rows
        for column, value in row.items()
        if isinstance(value, str) and len(value) > 32_000
    }
    assert longest == {}
    for attempt in stored["attempts"]:
        assert json.loads(attempt["error"])["kind"] == "execution"


@pytest.mark.parametrize("how", ["requeue", "fail", "refuse"])
async def test_a_server_that_writes_half_a_character_cannot_keep_a_job_from_ending(store: Store, how: str) -> None:
    leased = await submit_and_lease(store)
    failure = broken(message=json.loads('"half \\ud83e and nothing \\u0000"'))
    match how:
        case "requeue":
            await store.run(ops.requeue_job, leased.lease, failure, Retry(0.0, charged=True))
        case "fail":
            await store.run(ops.fail_job, leased.lease, failure, GiveUp(FailureClass.EXECUTION))
        case _:
            await store.run(ops.refuse_job, leased.lease, failure)
    assert (await store.run(ops.count_jobs)).processing == 0
    assert (await the_job(store)).failure_class == "execution"


async def test_files_are_noted_before_they_are_there(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.clock.advance(20)
    assert await store.run(ops.claim_files, leased.lease, ["a.png", "b.png"], LEASE_SECONDS) == []
    assert await store.run(ops.claim_files, leased.lease, ["b.png", "c.png"], LEASE_SECONDS) == ["b.png"]
    assert {row["path"] for row in database.by_hand("SELECT path FROM files")} == {"a.png", "b.png", "c.png"}
    database.clock.advance(LEASE_SECONDS)
    assert (await the_job(store)).lease_expires_at == database.clock.text()


@pytest.mark.parametrize("renews", [True, False])
async def test_a_result_is_noted_with_its_digest_and_the_newest_one_counts(store: Store, *, renews: bool) -> None:
    leased = await submit_and_lease(store)
    first, second = Digest("aa", 1), Digest("bb", 2**40)
    for digest in (first, second):
        await store.run(ops.claim_files, leased.lease, ["a.png"], LEASE_SECONDS, {"a.png": digest}, renews=renews)
        assert await store.run(ops.digests_of, ["a.png", "b.png"]) == {"a.png": digest}
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0, is_cached=renews)
    assert await store.run(ops.digests_of, ["a.png"]) == {"a.png": second}
    [attempt] = await store.run(ops.list_attempts, leased.lease.job_id)
    assert attempt.is_cached == int(renews)


async def test_a_file_of_another_job_is_never_taken(store: Store, database: Database) -> None:
    first = await submit_and_lease(store, "a.yaml")
    await store.run(ops.claim_files, first.lease, ["shared.png"], LEASE_SECONDS)
    second = await submit_and_lease(store, "b.yaml")
    before = everything(database)
    database.clock.advance(10)
    with pytest.raises(FileTaken, match=r"shared\.png belongs to the job a\.yaml") as raised:
        await store.run(ops.claim_files, second.lease, ["own.png", "shared.png"], LEASE_SECONDS)
    assert raised.value.path == "shared.png"
    assert everything(database) == before


async def test_a_file_stays_its_jobs_after_the_job_is_done(store: Store) -> None:
    first = await submit_and_lease(store, "a.yaml")
    await store.run(ops.claim_files, first.lease, ["shared.png"], LEASE_SECONDS)
    await store.run(ops.complete_job, first.lease, ["shared.png"], 1.0)
    second = await submit_and_lease(store, "b.yaml")
    with pytest.raises(FileTaken):
        await store.run(ops.claim_files, second.lease, ["shared.png"], LEASE_SECONDS)


async def test_a_file_whose_job_was_deleted_is_free(store: Store, database: Database) -> None:
    first = await submit_and_lease(store, "a.yaml")
    await store.run(ops.claim_files, first.lease, ["shared.png"], LEASE_SECONDS)
    database.by_hand("DELETE FROM jobs WHERE config_name = 'a.yaml'")
    second = await submit_and_lease(store, "b.yaml")
    assert await store.run(ops.claim_files, second.lease, ["shared.png"], LEASE_SECONDS) == []
    (row,) = database.by_hand("SELECT job_id FROM files")
    assert row["job_id"] == second.lease.job_id


async def test_files_that_are_not_the_result_are_handed_back_at_the_end(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["a.png", "a_2.png"], LEASE_SECONDS)
    assert await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0) == ["a_2.png"]
    assert await store.run(ops.list_strays) == ["a_2.png"]
    assert await removed(store, ["a.png", "a_2.png"]) == ["a_2.png"]
    assert [row["path"] for row in database.by_hand("SELECT path FROM files")] == ["a.png"]


async def test_a_file_that_could_not_be_removed_stays_on_record_and_can_be_claimed(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["a.png", "b.png"], LEASE_SECONDS)
    await store.run(ops.complete_job, leased.lease, [], 1.0)
    assert await removed(store, ["a.png", "late.png"], can_be=False) == ["a.png", "late.png"]
    assert await store.run(ops.list_strays) == ["a.png", "b.png", "late.png"]
    other = await submit_and_lease(store, "other.yaml")
    for renews in (True, False):
        await store.run(ops.claim_files, other.lease, ["a.png"], LEASE_SECONDS, renews=renews)
    assert await removed(store, await store.run(ops.list_strays)) == ["b.png", "late.png"]
    assert await removed(store, ["a.png"]) == []
    assert await store.run(ops.list_strays) == []


async def test_a_failed_job_hands_back_what_it_noted_and_never_delivered(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["a.png"], LEASE_SECONDS)
    assert await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.OUTPUT)) == ["a.png"]
    assert await removed(store, ["a.png"]) == ["a.png"]
    assert database.by_hand("SELECT path FROM files") == []
