"""The clock of the database decides, also when it steps; and every time is written in the same way."""

from __future__ import annotations

import re

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.store import Store
from support.stores import (
    LEASE_SECONDS,
    WORKER,
    Database,
    broken,
    lease,
    lease_one,
    open_attempt,
    submit_and_lease,
    submit_one,
    take_over,
    wish,
)

HOUR = 3600.0
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}")


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_worker_that_goes_on_renewing_keeps_its_job_when_the_clock_steps(
    store: Store, database: Database, step: float
) -> None:
    leased = await submit_and_lease(store)
    database.clock.advance(step)
    assert await store.run(ops.renew_leases, WORKER, LEASE_SECONDS) == {(leased.lease.job_id, leased.lease.fence)}
    assert not (await open_attempt(store)).has_expired
    await store.run(ops.complete_job, leased.lease, ["a.png"], None)


async def test_a_step_forward_ends_leases_and_still_gives_one_completion(store: Store, database: Database) -> None:
    stale = await submit_and_lease(store)
    database.clock.advance(HOUR)
    fresh = await take_over(store)
    database.clock.advance(-HOUR)
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, stale.lease, ["stale.png"], None)
    await store.run(ops.complete_job, fresh.lease, ["fresh.png"], None)
    assert [event.name for event in await store.run(ops.events_after, 0)].count("job.done") == 1


async def test_a_renewed_lease_runs_from_the_time_of_the_database_after_a_step_back(
    store: Store, database: Database
) -> None:
    await submit_and_lease(store)
    database.clock.advance(-HOUR)
    await store.run(ops.renew_leases, WORKER, LEASE_SECONDS)
    database.clock.advance(LEASE_SECONDS + 1)
    assert (await open_attempt(store)).has_expired


@pytest.mark.parametrize("step", [2 * HOUR, -2 * HOUR, -48 * HOUR])
async def test_a_backoff_ends_in_the_time_of_the_database(store: Store, database: Database, step: float) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(15.0, charged=True))
    database.clock.advance(step)
    if step == -2 * HOUR:
        assert await store.run(ops.seconds_until_next) == pytest.approx(2 * HOUR + 15, abs=0.1)
        database.clock.advance(-step + 15)
    assert (await lease_one(store)).lease.job_id == leased.lease.job_id


async def test_agents_with_clocks_of_their_own_agree_since_nobody_asks_theirs(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    leased = await submit_and_lease(store)
    assert not (await open_attempt(store)).has_expired
    await store.run(ops.complete_job, leased.lease, [], None)
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert job.end_time == database.clock.text()


async def test_every_time_in_the_database_is_written_in_one_way(store: Store, database: Database) -> None:
    await store.run(
        ops.submit_jobs, [wish("done"), wish("backoff"), wish("failed"), wish("refused"), wish("cancelled")]
    )
    done, backoff, failed, refused, cancelled = await lease(store, most=5)
    await store.run(ops.note_running, done.lease, 0.25)
    database.clock.advance(1.234)
    await store.run(ops.complete_job, done.lease, ["a.png"], None)
    await store.run(ops.requeue_job, backoff.lease, broken(), Retry(15.5, charged=True))
    await store.run(ops.fail_job, failed.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.refuse_job, refused.lease, broken())
    await store.run(ops.cancel_jobs, [cancelled.lease.job_id])
    await store.run(ops.withdraw_attempt, await open_attempt(store))
    await submit_and_lease(store, "running")
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('by hand', 'T2I', 'w', 'pending');"
        "INSERT INTO batches (id, name, kind, status) VALUES ('b', 'b', 'sweep', 'pending')"
    )
    times = {
        "jobs": ("created_at", "start_time", "end_time", "lease_expires_at", "next_attempt_at"),
        "attempts": ("started_at", "ended_at"),
        "events": ("at",),
        "batches": ("created_at",),
    }
    for table, columns in times.items():
        for column in columns:
            found = [row["t"] for row in database.by_hand(f"SELECT {column} AS t FROM {table}") if row["t"] is not None]
            assert found, f"no {column} to look at in {table}"
            assert [each for each in found if not TIME.fullmatch(each)] == []
    created = database.by_hand("SELECT count(*) AS without FROM jobs WHERE created_at IS NULL")
    assert created == [{"without": 0}]


async def test_times_sort_as_they_passed(store: Store, database: Database) -> None:
    for number in range(5):
        await submit_one(store, str(number))
        database.clock.advance(0.45)
    rows = database.by_hand("SELECT config_name FROM jobs ORDER BY created_at DESC")
    assert [row["config_name"] for row in rows] == ["4", "3", "2", "1", "0"]
