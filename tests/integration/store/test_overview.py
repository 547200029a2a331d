"""The overview: what it counts, over which time, and what it shows."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store import overview
from comfyui_agent.store.rows import time_text
from comfyui_agent.store.store import Store
from support.store_batches import FOX, land, queue
from support.stores import Database, broken, lease, lease_one, submit_and_lease, submit_one, wish

MINUTE = len("2025-08-09 12:30")


async def finish(store: Store, name: str, *, outputs: tuple[str, ...] = ("a.png",)) -> None:
    await store.run(ops.complete_job, (await submit_and_lease(store, name)).lease, list(outputs), 1.0)


async def fail(store: Store, name: str) -> None:
    await store.run(ops.fail_job, (await submit_and_lease(store, name)).lease, broken(), GiveUp(FailureClass.EXECUTION))


async def test_an_empty_database_has_nothing_to_show(store: Store, database: Database) -> None:
    found = await store.run(ops.read_overview)
    assert found.at == database.clock.text()
    assert found.counts.is_idle
    assert (found.done_last_five, found.failed_last_five, found.done_last_hour, found.failed_last_hour) == (0, 0, 0, 0)
    assert (found.processing, found.failed, found.done, found.batches) == ([], [], [], [])
    assert (found.queue_age_seconds, found.per_minute) == (None, 0.0)
    assert len(found.minutes) == 60
    assert {(each.done, each.failed) for each in found.minutes} == {(0, 0)}


async def test_what_ended_is_counted_in_its_minute_and_forgotten_after_an_hour(
    store: Store, database: Database
) -> None:
    await finish(store, "early")
    database.clock.advance(50 * 60)
    await finish(store, "a")
    await fail(store, "b")
    minute = database.clock.text()[:MINUTE]
    database.clock.advance(6 * 60)
    await finish(store, "late")
    found = await store.run(ops.read_overview)
    assert (found.done_last_hour, found.failed_last_hour) == (3, 1)
    assert (found.done_last_five, found.failed_last_five) == (1, 0)
    by_minute = {each.at: (each.done, each.failed) for each in found.minutes}
    assert by_minute[minute] == (1, 1)
    assert found.minutes[-1].at == database.clock.text()[:MINUTE]
    assert (found.minutes[-1].done, found.minutes[-1].failed) == (1, 0)
    assert [each.at for each in found.minutes] == sorted(by_minute)
    database.clock.advance(11 * 60)
    assert (await store.run(ops.read_overview)).done_last_hour == 2


async def test_the_pace_is_that_of_the_last_five_minutes_or_of_less_if_work_began_then(
    store: Store, database: Database
) -> None:
    database.clock.advance(60 - float(database.clock.text()[17:]))
    await finish(store, "first")
    assert (await store.run(ops.read_overview)).per_minute == 3.0  # as if it had been 20 seconds
    database.clock.advance(60)
    await finish(store, "second")
    assert (await store.run(ops.read_overview)).per_minute == 2.0
    database.clock.advance(239)
    assert (await store.run(ops.read_overview)).per_minute == pytest.approx(2 / 299 * 60)
    database.clock.advance(11)
    assert (await store.run(ops.read_overview)).per_minute == pytest.approx(1 / 250 * 60)
    database.clock.advance(300)
    assert (await store.run(ops.read_overview)).per_minute == 0.0


async def test_the_pace_of_one_batch_is_told_in_the_same_way(store: Store, database: Database) -> None:
    await finish(store, "alone")
    database.clock.advance(20)
    await queue(store, 3)
    for _ in range(2):
        await store.run(ops.complete_job, (await lease_one(store)).lease, ["a.png"], 1.0)
    database.clock.advance(40)
    assert await store.run(ops.done_per_minute, FOX) == pytest.approx(2 / 40 * 60)
    assert await store.run(ops.done_per_minute) == (await store.run(ops.read_overview)).per_minute
    database.clock.advance(300)
    assert await store.run(ops.done_per_minute, FOX) == 0.0


async def test_what_is_tried_again_has_still_failed_then(store: Store) -> None:
    await fail(store, "a")
    job = await store.run(ops.find_job, "a")
    assert job is not None
    await store.run(ops.retry_jobs, [job.id])
    found = await store.run(ops.read_overview)
    assert (found.counts.failed, found.failed_last_five, found.failed) == (0, 1, [])


async def test_what_was_cancelled_has_not_failed(store: Store) -> None:
    job_id = await submit_one(store)
    await store.run(ops.cancel_jobs, [job_id])
    await queue(store, 2)
    await ops.cancel_batch(store, FOX)
    found = await store.run(ops.read_overview)
    assert (found.counts.failed, found.failed_last_five, found.failed) == (3, 0, [])


async def test_a_run_that_failed_and_is_tried_again_is_no_end(store: Store) -> None:
    await store.run(ops.requeue_job, (await submit_and_lease(store)).lease, broken(), Retry(0.0, charged=True))
    found = await store.run(ops.read_overview)
    assert (found.failed_last_five, found.done_last_five) == (0, 0)


async def test_a_job_that_was_wrong_from_the_start_has_failed(store: Store, database: Database) -> None:
    columns = "INSERT INTO jobs (config_name, job_type, workflow_id, status, end_time) VALUES"
    database.by_hand(
        f"{columns} ('bad', 'T2I', 'wf', 'failed', '{database.clock.text()}'), ('old', 'T2I', 'wf', 'failed', "
        "'2020-01-01'), ('older', 'T2I', 'wf', 'done', '2020-01-01'), ('none', 'T2I', 'wf', 'failed', NULL)"
    )
    found = await store.run(ops.read_overview)
    assert (found.failed_last_five, found.done_last_five) == (1, 0)


async def test_a_clock_that_steps_back_shows_nothing_from_the_future(store: Store, database: Database) -> None:
    database.clock.advance(3600)
    await finish(store, "a")
    database.clock.advance(-3600)
    found = await store.run(ops.read_overview)
    assert (found.done_last_hour, found.counts.done) == (0, 1)


async def test_what_ended_more_than_a_day_ago_is_not_kept(store: Store, database: Database) -> None:
    for number in range(3):
        database.clock.advance(23 * 3600)
        await finish(store, str(number))
    database.tidy()
    rows = database.by_hand("SELECT * FROM endings")
    assert [(row["status"], row["jobs"]) for row in rows] == [("done", 1)] * 2


async def test_the_newest_of_each_kind_are_shown(store: Store, database: Database) -> None:
    for number in range(14):
        await finish(store, f"done_{number}")
        await fail(store, f"failed_{number}")
        database.clock.advance(1)
    await finish(store, "without", outputs=())
    await store.run(ops.submit_jobs, [wish(f"running_{number}") for number in range(3)])
    await lease(store, most=3)
    found = await store.run(ops.read_overview)
    assert [job.config_name for job in found.done] == [f"done_{number}" for number in range(13, 1, -1)]
    assert [job.config_name for job in found.failed] == [f"failed_{number}" for number in range(13, 5, -1)]
    assert [job.config_name for job in found.processing] == [f"running_{number}" for number in range(3)]


async def test_old_results_are_not_searched_for_without_end(store: Store, database: Database) -> None:
    await finish(store, "result")
    database.clock.advance(1)
    columns = "INSERT INTO jobs (config_name, job_type, workflow_id, status, end_time, failure_class) SELECT"
    counted = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 600) SELECT n FROM n"
    numbers = f"FROM ({counted}) AS numbers"
    for status in ("done", "failed"):
        database.by_hand(f"{columns} '{status}' || n, 'T2I', 'wf', '{status}', '2999-01-01', 'cancelled' {numbers}")
    assert overview.NEWEST_LOOKED_AT < 600
    found = await store.run(ops.read_overview)
    assert (found.done, found.failed) == ([], [])


async def test_batches_that_are_under_way_are_shown_with_their_counts(store: Store, database: Database) -> None:
    await queue(store, 1, "old")
    await land(store, await lease(store))
    for number in range(22):
        database.clock.advance(1)
        await queue(store, 2, f"batch_{number}")
    await ops.cancel_batch(store, "batch_20")
    await land(store, await lease(store))
    found = (await store.run(ops.read_overview)).batches
    assert [batch.id for batch in found] == ["batch_21", *(f"batch_{number}" for number in range(19, 0, -1))]
    assert (found[0].pending, found[0].total) == (2, 2)
    database.by_hand("UPDATE batches SET status = 'complete' WHERE id > 'batch_1'")
    (left,) = [batch for batch in (await store.run(ops.read_overview)).batches if batch.id == "batch_0"]
    assert (left.status, left.done, left.pending) == (BatchStatus.COLLECTING, 1, 1)


# How long the oldest job has waited.


async def age(store: Store) -> float | None:
    return (await store.run(ops.read_overview)).queue_age_seconds


async def test_the_longest_wait_is_told_whatever_its_priority(store: Store, database: Database) -> None:
    job_id = await submit_one(store, "old", priority=90)
    database.clock.advance(10)
    await submit_one(store, "new", priority=1)
    database.clock.advance(5)
    assert await age(store) == pytest.approx(15, abs=0.01)
    await store.run(ops.set_priority, job_id, 0)
    assert (await lease_one(store)).config_name == "old"
    assert await age(store) == pytest.approx(5, abs=0.01)


@pytest.mark.sqlite_only
@pytest.mark.parametrize("priority", ["'soon'", "x'00'", "-9e999", "2.5"])
async def test_a_priority_of_another_type_waits_as_well(store: Store, database: Database, priority: str) -> None:
    await test_a_priority_written_by_hand_waits_as_well(store, database, priority)


@pytest.mark.parametrize("priority", ["NULL", "-9223372036854775808"])
async def test_a_priority_written_by_hand_waits_as_well(store: Store, database: Database, priority: str) -> None:
    await submit_one(store, "odd")
    database.clock.advance(10)
    await submit_one(store, "plain")
    database.by_hand(f"UPDATE jobs SET priority = {priority} WHERE config_name = 'odd'")
    assert await age(store) == pytest.approx(10, abs=0.01)


async def test_what_is_held_back_on_purpose_is_not_late(store: Store, database: Database) -> None:
    await queue(store, 1)
    await store.run(ops.pause_batch, FOX)
    await store.run(ops.submit_jobs, [NewJob("burst", "T2I", "wf", reserved=True)])
    database.clock.advance(60)
    assert await age(store) is None


async def test_a_job_that_is_tried_again_has_not_waited_since_it_was_made(store: Store, database: Database) -> None:
    await submit_one(store)
    database.clock.advance(100)
    leased = await lease_one(store)
    database.clock.advance(20)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True))
    database.clock.advance(3)
    assert await age(store) == pytest.approx(23, abs=0.01)


async def test_a_wait_is_never_negative_and_never_nonsense(store: Store, database: Database) -> None:
    await submit_one(store)
    database.clock.advance(-100)
    assert await age(store) == 0.0


@pytest.mark.sqlite_only
async def test_the_wait_of_a_job_without_a_time_is_not_told(store: Store, database: Database) -> None:
    await submit_one(store)
    database.by_hand("UPDATE jobs SET created_at = 'some day'")
    assert await age(store) is None


# The last work.


async def test_the_last_work_ends_before_half_an_hour_in_which_nothing_ended(store: Store, database: Database) -> None:
    assert await store.run(ops.last_work) is None
    await finish(store, "the day before")
    database.clock.advance(31 * 60)
    began = database.clock.text()
    for number in range(5):
        await finish(store, f"night_{number}")
        database.clock.advance(29 * 60)
    await fail(store, "broken")
    await store.run(ops.cancel_jobs, [await submit_one(store, "unwanted")])
    ended = database.clock.text()
    database.clock.advance(3 * 24 * 3600)
    found = await store.run(ops.last_work)
    assert found is not None
    assert (time_text(found.began), time_text(found.ended)) == (began, ended)
    assert (found.done, found.attention) == (5, 1)
    assert [(each.failure_class, each.run_count, each.jobs) for each in found.troubles] == [("execution", 1, 1)]
    assert [job.config_name for job in found.results] == [f"night_{number}" for number in reversed(range(5))]


async def test_the_last_work_counts_what_needs_attention_now_by_its_reason(store: Store, database: Database) -> None:
    for number in range(3):
        await fail(store, f"broken_{number}")
    columns = "INSERT INTO jobs (config_name, job_type, workflow_id, status, failure_class, end_time) VALUES"
    now, later = database.clock.text(), "2999-01-01 00:00:00.000"
    database.by_hand(
        f"{columns} ('bad', 'T2I', 'wf', 'failed', 'invalid', '{now}'), ('odd', 'T2I', 'wf', 'done', NULL, '{later}')"
    )
    job = await store.run(ops.find_job, "broken_0")
    assert job is not None
    await store.run(ops.dismiss_jobs, [job.id])
    found = await store.run(ops.last_work)
    assert found is not None
    assert {(each.failure_class, each.run_count, each.jobs) for each in found.troubles} == {
        ("execution", 1, 2),
        ("invalid", 0, 1),
    }
    assert (found.done, found.results) == (0, [])
