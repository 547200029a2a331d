"""Rows that people wrote, and wrote wrongly: none of them stops the others, and none costs anyone a file."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.store import Store
from support.stores import Database, broken, lease, lease_one, open_attempt, removed, submit_and_lease, submit_one


@pytest.mark.sqlite_only
async def test_two_names_in_another_encoding_stay_two_names(store: Store, database: Database) -> None:
    for number, byte in enumerate(("e9", "e8"), start=1):
        await submit_one(store, f"{number}.yaml")
        database.by_hand(f"UPDATE jobs SET config_name = CAST(x'636166{byte}' AS TEXT) WHERE id = {number}")
    assert {leased.config_name for leased in await lease(store, most=2)} == {"café", "cafè"}
    assert {job.config_name for job in await store.run(ops.list_jobs)} == {"café", "cafè"}


async def test_outputs_that_are_no_list_keep_no_job_from_ending(store: Store, database: Database) -> None:
    leased = await submit_and_lease(store)
    database.by_hand("UPDATE jobs SET outputs = 'see the other folder'")
    await store.run(ops.fail_job, leased.lease, broken(), GiveUp(broken().kind))
    (job,) = await store.run(ops.list_jobs)
    assert (job.status, job.outputs) == ("failed", ())


async def test_a_job_in_backoff_whose_time_was_taken_away_runs_now(store: Store, database: Database) -> None:
    await submit_one(store)
    database.by_hand("UPDATE jobs SET hold = 'backoff', next_attempt_at = NULL")
    assert (await lease_one(store)).config_name == "knight.yaml"


@pytest.mark.sqlite_only
async def test_a_row_that_was_replaced_by_hand_leaves_nothing_to_wait_for(store: Store, database: Database) -> None:
    await submit_one(store)
    assert not await store.run(ops.is_queue_idle)
    database.by_hand(
        "INSERT OR REPLACE INTO jobs (id, config_name, job_type, workflow_id, status) "
        "VALUES (1, 'knight.yaml', 'T2I', 'wf', 'done')"
    )
    assert await store.run(ops.is_queue_idle)


@pytest.mark.parametrize("was_done", [True, False])
async def test_a_deleted_job_takes_no_delivered_file_along(store: Store, database: Database, was_done: bool) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["jobs/k.png"], 30)
    if was_done:
        await store.run(ops.complete_job, leased.lease, ["jobs/k.png"], 1.0)
        database.by_hand("UPDATE jobs SET status = 'pending'")
        await lease_one(store)
    database.by_hand("DELETE FROM jobs")
    strays = await store.run(ops.withdraw_attempt, await open_attempt(store))
    assert strays == ([] if was_done else ["jobs/k.png"])


async def test_only_a_file_that_is_nobodys_is_given_away(store: Store) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.claim_files, leased.lease, ["jobs/k.png"], 30)
    assert await removed(store, ["jobs/k.png", "jobs/other.png"]) == ["jobs/other.png"]


@pytest.mark.sqlite_only
async def test_counts_without_an_end_keep_no_list_from_being_read(store: Store, database: Database) -> None:
    await submit_one(store)
    database.by_hand("UPDATE jobs SET run_count = 9e999, strikes = -9e999")
    (job,) = await store.run(ops.list_jobs)
    assert (job.run_count, job.strikes) == (0, 0)


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    "written",
    [
        "2025-08-09 12:30:01.250",
        "2025-08-09T12:30:01.250",
        "2025-08-09 12:30:01,250",
        "2025-08-09 12:30:01",
        "2025-W32-6 12:30:01.250",
        "2025-13-09 12:30:01.250",
        "yesterday",
        "a text of 23 characters",
        "",
    ],
)
async def test_times_are_shown_as_they_are_written(store: Store, database: Database, written: str) -> None:
    await submit_one(store, "other")
    await submit_one(store)
    database.by_hand(f"UPDATE jobs SET status = 'done', start_time = '{written}', end_time = '{written}'")
    wanted = JobFilter(status=JobStatus.DONE)
    first = await store.run(ops.job_page, wanted, None, 1)
    second = await store.run(ops.job_page, wanted, first.cursor, 1)
    assert [job.config_name for job in (*first.jobs, *second.jobs)] == ["knight.yaml", "other"]
    assert {(job.start_time, job.end_time) for job in (*first.jobs, *second.jobs)} == {(written, written)}
