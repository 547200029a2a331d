"""Prompts whose agent is gone are taken over; what nobody wants is taken back; nothing is left lying."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import (
    HOST,
    LEASE_SECONDS,
    SERVER,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    register,
    removed,
    submit_and_lease,
    submit_one,
    take_over,
)


async def test_an_open_run_is_seen_with_what_its_job_says(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    seen = await open_attempt(store)
    assert (seen.attempt_id, seen.job_id) == (leased.lease.attempt_id, leased.lease.job_id)
    assert (seen.server, seen.prompt_id, seen.fence) == (SERVER, leased.prompt_id, leased.lease.fence)
    assert (seen.worker, seen.attempt_worker, seen.status) == (WORKER, WORKER, "processing")
    assert (seen.has_expired, seen.is_wanted) == (False, True)
    database.clock.advance(LEASE_SECONDS)
    assert not (await open_attempt(store)).has_expired
    database.clock.advance(0.001)
    assert (await open_attempt(store)).has_expired


async def test_a_run_that_is_taken_over_stays_the_same_run(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store, inputs={"6.text": "x"})
    await store.run(ops.note_running, leased.lease, 12.5)
    before = await store.run(ops.find_job, "knight.yaml")
    database.clock.advance(LEASE_SECONDS + 1)
    taken = await take_over(store, "second-agent")
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert before is not None
    assert (taken.prompt_id, taken.server, taken.inputs) == (leased.prompt_id, SERVER, '{"6.text":"x"}')
    assert (taken.is_taken_over, taken.previous_worker) == (True, WORKER)
    assert taken.running_seconds == 12.5, "seconds without an agent are not counted"
    assert taken.lease.attempt_id == leased.lease.attempt_id
    assert taken.lease.fence > leased.lease.fence
    assert (job.run_count, job.retries_attempted, job.strikes) == (1, 0, 0)
    assert (job.status, job.worker_id, job.start_time) == ("processing", "second-agent", before.start_time)
    (attempt,) = await store.run(ops.list_attempts, job.id)
    assert (attempt.prompt_id, attempt.worker_id) == (leased.prompt_id, "second-agent")
    await store.run(ops.complete_job, taken.lease, ["a.png"], None)


async def test_a_run_that_has_not_begun_is_taken_over_without_a_running_time(store: Store) -> None:
    await submit_and_lease(store)
    assert (await take_over(store)).running_seconds is None


async def test_a_job_with_an_open_run_is_taken_over_and_never_leased_anew(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.by_hand("UPDATE jobs SET status='pending', worker_id=NULL, lease_expires_at=NULL")
    assert await lease(store) == []
    seen = await open_attempt(store)
    assert (seen.status, seen.worker, seen.has_expired, seen.is_wanted) == ("pending", None, True, True)
    taken = await take_over(store)
    assert taken.prompt_id == leased.prompt_id
    assert (await store.run(ops.count_jobs)).processing == 1


async def test_after_a_clean_goodbye_the_next_agent_takes_over(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.release_jobs, WORKER)
    taken = await take_over(store)
    assert (taken.prompt_id, taken.previous_worker) == (leased.prompt_id, WORKER)
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert job.run_count == 1


async def test_a_run_that_has_ended_meanwhile_is_not_taken_over(store: Store) -> None:
    leased = await submit_and_lease(store)
    seen = await open_attempt(store)
    await store.run(ops.complete_job, leased.lease, ["a.png"], None)
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    assert await store.run(ops.open_attempts) == []


async def test_a_run_that_ended_and_whose_job_waits_again_is_not_taken_over(store: Store) -> None:
    leased = await submit_and_lease(store)
    seen = await open_attempt(store)
    await store.run(ops.return_unsent, leased.lease)
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    assert (await lease_one(store)).config_name == "knight.yaml"


async def test_a_run_seen_before_its_job_was_cancelled_and_retried_has_to_be_looked_at_again(store: Store) -> None:
    leased = await submit_and_lease(store)
    seen = await open_attempt(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    assert (await take_over(store)).prompt_id == leased.prompt_id


async def test_a_run_seen_before_its_job_was_put_back_has_to_be_looked_at_again(store: Store) -> None:
    leased = await submit_and_lease(store)
    seen = await open_attempt(store)
    assert await store.run(ops.put_back_orphans, HOST) == 1
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    assert (await take_over(store)).prompt_id == leased.prompt_id


@pytest.mark.parametrize("ending", ["cancelled", "deleted", "done by hand", "failed by hand"])
async def test_a_run_nobody_wants_is_withdrawn_and_never_taken_over(
    store: Store, database: Database, ending: str
) -> None:
    leased = await submit_and_lease(store)
    match ending:
        case "cancelled":
            await store.run(ops.cancel_jobs, [leased.lease.job_id])
        case "deleted":
            database.by_hand("DELETE FROM jobs")
        case _:
            database.by_hand(f"UPDATE jobs SET status = '{ending.split()[0]}'")
    seen = await open_attempt(store)
    assert not seen.is_wanted
    assert await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS) is None
    assert await store.run(ops.withdraw_attempt, seen) == []
    assert await store.run(ops.withdraw_attempt, seen) is None
    (attempt,) = await store.run(ops.list_attempts, leased.lease.job_id)
    assert (attempt.outcome, attempt.ended_at) == ("cancelled", database.clock.text())
    assert await store.run(ops.open_attempts) == []


async def test_a_run_whose_job_is_asked_for_again_is_not_withdrawn(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    seen = await open_attempt(store)
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    assert await store.run(ops.withdraw_attempt, seen) is None
    assert (await take_over(store)).prompt_id == leased.prompt_id


async def test_a_run_that_is_withdrawn_hands_back_what_it_noted_and_never_delivered(
    store: Store, database: Database
) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["a.png"], LEASE_SECONDS)
    await store.run(ops.cancel_jobs, [leased.lease.job_id])
    assert await store.run(ops.withdraw_attempt, await open_attempt(store)) == ["a.png"]
    assert await removed(store, ["a.png"]) == ["a.png"]
    assert database.by_hand("SELECT path FROM files") == []


async def test_a_job_said_to_be_processing_of_which_nothing_is_anywhere_waits_again(
    store: Store, database: Database
) -> None:
    await submit_one(store)
    await register(store, "someone")
    database.by_hand("UPDATE jobs SET status = 'processing', worker_id = 'someone'")
    assert await store.run(ops.put_back_unattended, HOST) == 1
    assert (await lease_one(store)).config_name == "knight.yaml"


async def test_a_job_whose_run_is_open_is_not_unattended(store: Store, database: Database) -> None:
    await submit_and_lease(store)
    database.clock.advance(LEASE_SECONDS + 1)
    assert await store.run(ops.put_back_unattended, HOST) == 0


@pytest.mark.parametrize(("moved", "is_dead", "put_back"), [(0, False, 0), (0, True, 1), (31, False, 1)])
async def test_an_orphan_waits_again_when_its_lease_ran_out_or_its_agent_is_gone(
    store: Store, database: Database, moved: int, is_dead: bool, put_back: int
) -> None:
    if not is_dead:
        await register(store, WORKER)
    leased = await submit_and_lease(store)
    database.clock.advance(moved)
    assert await store.run(ops.put_back_orphans, HOST) == put_back
    assert (await store.run(ops.count_jobs)).pending == put_back
    assert await store.run(ops.owned_prompts) == {leased.prompt_id}
    if put_back:
        assert (await take_over(store)).prompt_id == leased.prompt_id


async def test_a_retried_job_whose_run_ended_runs_anew(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.retry_jobs, [leased.lease.job_id])
    again = await lease_one(store)
    assert again.prompt_id != leased.prompt_id
    assert [attempt.number for attempt in await store.run(ops.list_attempts, leased.lease.job_id)] == [1, 2]


async def test_the_database_itself_refuses_a_second_open_run_of_a_job(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    with pytest.raises(AssertionError, match=r"UNIQUE|unique"):
        database.by_hand(f"INSERT INTO attempts (job_id, number) VALUES ({leased.lease.job_id}, 2)")
