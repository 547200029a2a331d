"""What needs attention: what failed, was not cancelled on purpose, and nobody has dismissed."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.job_files import ReadFile
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.records import Counts
from comfyui_agent.store.store import Store
from support.store_batches import FOX, queue
from support.stores import Database, broken, lease, real_counts, submit_one, wish


async def names(store: Store, **asked: bool | str) -> list[str]:
    return [job.config_name for job in (await store.run(ops.job_page, JobFilter(**asked), None, 50)).jobs]  # type: ignore[arg-type]


@pytest.fixture
async def night(store: Store) -> dict[str, JobId]:
    """One job of each end: done, failed, failed and dismissed, cancelled; and one that waits."""
    found = {name: await submit_one(store, name) for name in ("done", "failed", "dismissed", "cancelled", "waits")}
    done, failed, dismissed = await lease(store, most=3)
    await store.run(ops.complete_job, done.lease, ["jobs/finished/image/done.png"], None)
    for leased in (failed, dismissed):
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await store.run(ops.cancel_jobs, [found["cancelled"]])
    assert await store.run(ops.dismiss_jobs, [found["dismissed"]]) == 1
    return found


async def test_only_what_failed_and_was_neither_cancelled_nor_dismissed_needs_attention(
    night: dict[str, JobId], store: Store, database: Database
) -> None:
    assert await store.run(ops.count_jobs) == Counts(pending=1, done=1, failed=3, attention=1)
    assert await store.run(ops.count_jobs) == Counts(**real_counts(database))
    assert [job.config_name for job in (await store.run(ops.read_overview)).failed] == ["failed"]
    assert [job.config_name for job in await store.run(ops.list_jobs, attention=True)] == ["failed"]
    assert await names(store, attention=True) == ["failed"]
    assert sorted(await names(store, attention=False)) == ["cancelled", "dismissed"]
    assert await names(store, attention=False, text="cancel") == ["cancelled"]
    assert await names(store, attention=True, text="dismissed") == []
    assert {job.config_name: job.state for job in await store.run(ops.list_jobs)} == {
        "waits": "pending",
        "failed": "failed",
        "dismissed": "dismissed",
        "cancelled": "cancelled",
        "done": "done",
    }


async def test_a_dismissed_job_stays_in_the_history_and_says_when(
    night: dict[str, JobId], store: Store, database: Database
) -> None:
    job = await store.run(ops.find_job, "dismissed")
    assert job is not None
    assert (job.status, job.dismissed_at, job.error_trace) == ("failed", database.clock.text(), "execution: boom")
    assert len(await store.run(ops.list_attempts, job.id)) == 1


async def test_only_failed_jobs_are_dismissed_and_twice_is_once(night: dict[str, JobId], store: Store) -> None:
    assert await store.run(ops.dismiss_jobs, [night["waits"], night["done"], night["dismissed"]]) == 0
    assert await store.run(ops.dismiss_jobs, [night["failed"], night["cancelled"]]) == 2
    assert (await store.run(ops.count_jobs)).attention == 0


async def test_a_retry_makes_it_a_job_like_any_other(night: dict[str, JobId], store: Store, database: Database) -> None:
    assert await store.run(ops.retry_jobs, [night["dismissed"]]) == [night["dismissed"]]
    job = await store.run(ops.find_job, "dismissed")
    assert job is not None
    assert (job.status, job.dismissed_at) == ("pending", None)
    waits, again = await lease(store, most=2)
    await store.run(
        ops.fail_job, (again if again.config_name == "dismissed" else waits).lease, broken(), GiveUp(FailureClass.OOM)
    )
    assert await names(store, attention=True) == ["dismissed", "failed"]
    assert await store.run(ops.count_jobs) == Counts(**real_counts(database))


async def test_a_file_that_is_changed_and_still_wrong_needs_attention_again(store: Store) -> None:
    for digest in ("first", "second"):
        job = wish("bad.yaml", source="jobs/processing/image/bad.yaml", digest=digest)
        await store.run(ops.file_jobs, [ReadFile(job, "inputs.seed: is missing")])
        found = await store.run(ops.find_job, "bad.yaml")
        assert found is not None
        assert found.needs_attention
        await store.run(ops.dismiss_jobs, [found.id])
        assert (await store.run(ops.count_jobs)).attention == 0


async def test_changes_by_hand_count(night: dict[str, JobId], store: Store, database: Database) -> None:
    for change, needy in (
        ("UPDATE jobs SET failure_class = 'oom' WHERE config_name = 'cancelled'", 2),
        ("UPDATE jobs SET dismissed_at = NULL", 3),
        ("UPDATE jobs SET status = 'pending' WHERE config_name = 'failed'", 2),
        ("UPDATE jobs SET dismissed_at = '2025-01-01 00:00:00.000' WHERE config_name = 'cancelled'", 1),
        ("DELETE FROM jobs WHERE config_name = 'dismissed'", 0),
        ("INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('x', 'T2I', 'w', 'failed')", 1),
    ):
        database.by_hand(change)
        assert await store.run(ops.count_jobs) == Counts(**real_counts(database)), change
        assert (await store.run(ops.count_jobs)).attention == needy, change


async def test_wrong_counts_are_counted_again(night: dict[str, JobId], store: Store, database: Database) -> None:
    database.by_hand("UPDATE job_counts SET jobs = 99 WHERE status = 'attention'")
    await store.run(ops.recount)
    assert await store.run(ops.count_jobs) == Counts(**real_counts(database))


async def test_a_batch_counts_what_needs_attention_and_dismisses_it(store: Store) -> None:
    await queue(store, 4, kind=BatchKind.BOOK)
    one, two = await lease(store, most=2)
    for leased in (one, two):
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.INVALID))
    await ops.cancel_batch(store, FOX)
    batch = await store.run(ops.find_batch, FOX)
    assert batch is not None
    assert (batch.failed, batch.attention) == (4, 2)
    assert await store.run(ops.dismiss_batch, FOX) == 2
    assert await store.run(ops.dismiss_batch, FOX) == 0
    batch = await store.run(ops.find_batch, FOX)
    assert batch is not None
    assert (batch.failed, batch.attention, batch.total) == (4, 0, 4)
    assert [page["status"] for page in await store.run(ops.book_pages, FOX)] == ["Dismissed"] * 2 + ["Cancelled"] * 2
    assert await store.run(ops.retry_batch, FOX) == 0
    assert await store.run(ops.retry_batch, FOX, with_cancelled=True) == 4


async def test_ended_jobs_are_removed_with_their_runs_and_claims_and_others_are_not(
    night: dict[str, JobId], store: Store, database: Database
) -> None:
    [leased] = await lease(store)
    ended = [night[name] for name in ("done", "failed", "dismissed", "cancelled")]
    database.by_hand(f"INSERT INTO files (path, job_id) VALUES ('jobs/finished/image/done.png', {night['done']})")
    assert await store.run(ops.remove_jobs, [*ended, night["waits"], JobId(12345)]) == ended
    assert [job.config_name for job in await store.run(ops.list_jobs)] == ["waits"]
    assert await store.run(ops.count_jobs) == Counts(processing=1)
    assert database.by_hand("SELECT job_id FROM attempts") == [{"job_id": leased.lease.job_id}]
    assert database.by_hand("SELECT * FROM files") == []


async def test_the_prompt_of_a_removed_job_is_still_taken_back_and_none_of_its_results_is_deleted(
    store: Store, database: Database
) -> None:
    job_id = await submit_one(store)
    [leased] = await lease(store)
    await store.run(ops.complete_job, leased.lease, ["a.png"], None)
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    [again] = await lease(store)
    await store.run(ops.claim_files, again.lease, ["a.png"], 30.0)
    await store.run(ops.cancel_jobs, [job_id])
    assert await store.run(ops.remove_jobs, [job_id]) == [job_id]
    [attempt] = await store.run(ops.open_attempts)
    assert (attempt.prompt_id, attempt.is_wanted) == (again.prompt_id, False)
    assert await store.run(ops.withdraw_attempt, attempt) == []
