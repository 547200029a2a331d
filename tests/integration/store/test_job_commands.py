"""What people ask for: cancel, retry, look, count."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Counts
from comfyui_agent.store.store import Store
from support.stores import (
    SERVER,
    Database,
    broken,
    everything,
    lease,
    lease_one,
    real_counts,
    submit_and_lease,
    submit_one,
    wish,
)


async def test_a_waiting_job_that_is_cancelled_never_runs(store: Store, database: Database) -> None:
    job_id = await submit_one(store)
    assert await store.run(ops.cancel_jobs, [job_id]) == [job_id]
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert (job.status, job.failure_class, job.error_trace) == ("failed", "cancelled", "cancelled: by request")
    assert (job.end_time, job.run_count) == (database.clock.text(), 0)
    assert await lease(store) == []
    event = (await store.run(ops.events_after, 0))[-1]
    assert (event.name, event.job_id, event.failure_class) == ("job.cancelled", job_id, "cancelled")


async def test_a_running_job_that_is_cancelled_leaves_its_prompt_to_be_taken_back(store: Store) -> None:
    leased = await submit_and_lease(store)
    assert await store.run(ops.cancel_jobs, [leased.lease.job_id]) == [leased.lease.job_id]
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert (job.status, job.worker_id, job.lease_expires_at) == ("failed", None, None)
    assert await store.run(ops.owned_prompts) == {leased.prompt_id}
    event = (await store.run(ops.events_after, 0))[-1]
    assert (event.name, event.prompt_id, event.server) == ("job.cancelled", leased.prompt_id, SERVER)


async def test_what_has_ended_or_does_not_exist_cannot_be_cancelled(store: Store, database: Database) -> None:
    done = await submit_and_lease(store, "done")
    await store.run(ops.complete_job, done.lease, ["a.png"], None)
    failed = await submit_and_lease(store, "failed")
    await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.EXECUTION))
    before = everything(database)
    assert await store.run(ops.cancel_jobs, [done.lease.job_id, failed.lease.job_id, 999]) == []
    assert everything(database) == before


async def test_cancelling_several_says_which_were_cancelled(store: Store) -> None:
    first, second = await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    assert await store.run(ops.cancel_jobs, [second, first, second]) == [second, first]


async def test_a_job_cancelled_in_backoff_stays_cancelled(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    database.clock.advance(3600)
    assert await lease(store) == []
    assert await store.run(ops.seconds_until_next) is None


@pytest.mark.parametrize("kind", [FailureClass.EXECUTION, FailureClass.POISON])
async def test_a_retried_job_gets_a_fresh_start(store: Store, kind: FailureClass) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True, strike=True), avoid_server=True)
    again = await lease_one(store, server="http://other:8188")
    await store.run(ops.fail_job, again.lease, broken(), GiveUp(kind, needs_regeneration=True))
    assert await store.run(ops.retry_jobs, [leased.lease.job_id]) == [leased.lease.job_id]
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert (job.status, job.retries_attempted, job.strikes, job.needs_regeneration) == ("pending", 0, 0, False)
    assert (job.end_time, job.duration, job.run_count) == (None, None, 2)
    assert (await lease_one(store, server=SERVER)).config_name == "knight.yaml"


async def test_a_cancelled_job_can_be_retried_by_name(store: Store) -> None:
    job_id = await submit_one(store)
    await store.run(ops.cancel_jobs, [job_id])
    assert await store.run(ops.retry_jobs, [job_id]) == [job_id]
    assert (await lease_one(store)).lease.job_id == job_id


async def test_only_what_has_failed_can_be_retried(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("pending"), wish("processing", priority=1), wish("done", priority=2)])
    _, done = await lease(store, most=2)
    await store.run(ops.complete_job, done.lease, [], None)
    before = everything(database)
    assert await store.run(ops.retry_jobs, [1, 2, 3, 4]) == []
    assert everything(database) == before


async def test_jobs_are_listed_as_they_run_then_as_they_will_run_then_as_they_ended(
    store: Store, database: Database
) -> None:
    await store.run(ops.submit_jobs, [wish(name, priority=number) for number, name in enumerate("abcdef")])
    one, two, three, _ = await lease(store, most=4)
    await store.run(ops.complete_job, one.lease, [], None)
    database.clock.advance(1)
    await store.run(ops.complete_job, two.lease, [], None)
    await store.run(ops.fail_job, three.lease, broken(), GiveUp(FailureClass.EXECUTION))
    assert [job.config_name for job in await store.run(ops.list_jobs)] == ["d", "e", "f", "c", "b", "a"]
    assert [job.config_name for job in await store.run(ops.list_jobs, limit=3)] == ["d", "e", "f"]
    assert [job.config_name for job in await store.run(ops.list_jobs, status=JobStatus.DONE)] == ["b", "a"]
    assert [job.config_name for job in await store.run(ops.list_jobs, status=JobStatus.FAILED)] == ["c"]
    assert [job.config_name for job in await store.run(ops.list_jobs, status=JobStatus.PENDING)] == ["e", "f"]
    assert [job.config_name for job in await store.run(ops.list_jobs, status=JobStatus.PROCESSING)] == ["d"]


async def test_counts_are_what_counting_would_say_also_after_changes_by_hand(store: Store, database: Database) -> None:
    async def assert_true() -> None:
        assert await store.run(ops.count_jobs) == Counts(**real_counts(database))

    await assert_true()
    await store.run(ops.submit_jobs, [wish(str(number)) for number in range(6)])
    one, two, three = await lease(store, most=3)
    await assert_true()
    await store.run(ops.complete_job, one.lease, [], None)
    await store.run(ops.requeue_job, two.lease, broken(), Retry(5.0, charged=True))
    await store.run(ops.fail_job, three.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await assert_true()
    assert await store.run(ops.count_jobs) == Counts(pending=4, done=1, failed=1, attention=1)
    database.by_hand("UPDATE jobs SET status = 'done' WHERE status = 'pending' AND id > 4")
    database.by_hand("UPDATE jobs SET status = status")
    await assert_true()
    database.by_hand("DELETE FROM jobs WHERE status = 'done'")
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES "
        "('x', 'T2I', 'w', 'failed'), ('y', 'T2I', 'w', 'processing')"
    )
    await assert_true()
    database.by_hand("BEGIN; DELETE FROM jobs; ROLLBACK")
    await assert_true()
    database.by_hand("DELETE FROM jobs")
    assert await store.run(ops.count_jobs) == Counts()
    assert (await store.run(ops.count_jobs)).is_idle


async def test_counts_that_went_wrong_are_put_right(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b")])
    database.by_hand("UPDATE job_counts SET jobs = jobs + 3 WHERE status = 'done'")
    assert await store.run(ops.count_jobs) != Counts(**real_counts(database))
    await store.run(ops.recount)
    assert await store.run(ops.count_jobs) == Counts(**real_counts(database)) == Counts(pending=2)
