"""Members that are wanted again: one new generation of their batch, with one more completion."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.jobs import JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.store import Store
from comfyui_agent.web.pages.cells import took
from support.store_batches import (
    FOX,
    all_that_is_there,
    batch_of,
    completions,
    fall,
    job_of,
    land,
    look,
    queue,
    status_of,
    told,
)
from support.stores import (
    HOST,
    Database,
    lease,
    lease_one,
    wish,
)

GRAPH = Template.of({"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}}})


async def failed_batch(store: Store, count: int = 4) -> list[JobId]:
    """Complete: the first is done, the others have failed."""
    ids = await queue(store, count)
    leased = await lease(store, most=count)
    await land(store, leased[:1])
    await fall(store, leased[1:])
    assert await status_of(store) == "complete"
    return ids


async def _retry_batch(store: Store, ids: list[JobId]) -> int:
    return await store.run(ops.retry_batch, FOX)


async def _retry_by_name(store: Store, ids: list[JobId]) -> int:
    return len(await store.run(ops.retry_jobs, ids))


async def _wish_again(store: Store, ids: list[JobId]) -> int:
    return len(await store.run(ops.resubmit_jobs, [(each, None) for each in ids[1:]]))


AGAIN = {"batch": _retry_batch, "by-name": _retry_by_name, "wish": _wish_again}


@pytest.mark.parametrize("way", AGAIN)
async def test_a_retry_opens_one_new_generation_that_completes_once(store: Store, database: Database, way: str) -> None:
    ids = await failed_batch(store)
    assert (await batch_of(store)).reopened_at is None
    database.clock.advance(1800)
    assert await AGAIN[way](store, ids) == 3
    found = await batch_of(store)
    assert (found.status, found.generation, found.completed_at) == (BatchStatus.ACTIVE, 2, None)
    assert (found.pending, found.done, found.reopened_at) == (3, 1, database.clock.text())
    database.clock.advance(1.6)
    leased = await lease(store, most=9)
    assert sorted(each.lease.job_id for each in leased) == ids[1:]
    await land(store, leased[:1])
    assert await status_of(store) == "collecting"
    await land(store, leased[1:])
    assert (await batch_of(store)).generation == 2
    assert took(await batch_of(store), "") == "1.6 s", "of the current generation"
    assert await told(store) == ["batch.created", "batch.completed", "batch.completed"]


async def test_a_retry_before_the_batch_is_complete_is_of_the_same_generation(store: Store) -> None:
    ids = await queue(store, 2)
    await fall(store, [await lease_one(store)])
    assert await store.run(ops.retry_batch, FOX) == 1
    await land(store, await lease(store, most=9))
    assert ((await batch_of(store)).generation, await completions(store)) == (1, 1)
    assert {(await job_of(store, each)).status for each in ids} == {JobStatus.DONE}


async def test_a_retry_with_nothing_to_retry_changes_nothing(store: Store, database: Database) -> None:
    await queue(store, 1)
    await land(store, await lease(store))
    before = all_that_is_there(database)
    assert await store.run(ops.retry_batch, FOX) == 0
    assert await store.run(ops.retry_batch, "never") == 0
    assert all_that_is_there(database) == before


async def test_a_retried_member_has_a_fresh_start(store: Store) -> None:
    _, first, second, _ = await failed_batch(store)
    await store.run(ops.retry_jobs, [first])
    await store.run(ops.cancel_jobs, [first])
    assert await store.run(ops.retry_batch, FOX, with_cancelled=True) == 3
    retried = [await job_of(store, each) for each in (first, second)]
    facts = {(job.status, job.error_trace, job.failure_class, job.retries_attempted, job.hold) for job in retried}
    assert facts == {(JobStatus.PENDING, None, None, 0, None)}


@pytest.mark.parametrize("status", ["pending", "processing"])
async def test_a_reset_by_hand_opens_a_new_generation_too(store: Store, database: Database, status: str) -> None:
    await failed_batch(store)
    database.by_hand(f"UPDATE jobs SET status = '{status}' WHERE batch_id = '{FOX}' AND status = 'failed'")
    assert ((await batch_of(store)).generation, await status_of(store)) == (2, "active")
    assert await store.run(ops.put_back_unattended, HOST) == (3 if status == "processing" else 0)
    await land(store, await lease(store, most=9))
    assert ((await batch_of(store)).generation, await completions(store)) == (2, 2)


async def test_a_result_of_the_generation_before_that_is_given_another_word_by_hand_is_no_new_result(
    store: Store, database: Database
) -> None:
    await failed_batch(store)
    await store.run(ops.retry_batch, FOX)
    database.by_hand("UPDATE jobs SET status = 'failed' WHERE status = 'done'")
    assert await status_of(store) == "active"


async def test_the_clock_of_a_new_generation_begins_anew(store: Store, database: Database) -> None:
    failed, running = await queue(store, 2)
    await fall(store, await lease(store))
    await look(store, database, 40)
    database.by_hand(f"DELETE FROM jobs WHERE id = {running}")
    await store.run(ops.retry_jobs, [failed])
    assert await look(store, database, 40) == []
    assert await look(store, database, 20) == [FOX]


async def test_a_member_that_comes_late_opens_a_new_generation(store: Store, database: Database) -> None:
    await failed_batch(store)
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, batch_id, batch_index) "
        f"VALUES ('late', 'T2I', 'wf', 'pending', '{FOX}', 9)"
    )
    assert ((await batch_of(store)).generation, await status_of(store)) == (2, "active")
    await store.run(ops.submit_jobs, [wish("later", batch_id=FOX, batch_index=10)])
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


async def test_a_request_for_what_is_done_keeps_the_result_until_there_is_another(store: Store) -> None:
    (job_id,) = await queue(store, 1)
    await land(store, await lease(store))
    assert await store.run(ops.resubmit_jobs, [(job_id, None)], avoid_cache=True) == [job_id]
    job = await job_of(store, job_id)
    assert (job.status, job.outputs, job.failure_class) == (JobStatus.PENDING, ("fox_1_0.png",), "output")
    again = await lease_one(store)
    assert again.last_failure == "output"
    await store.run(ops.complete_job, again.lease, ["new.png"], None)
    assert (await job_of(store, job_id)).outputs == ("new.png",)
    assert ((await batch_of(store)).generation, await completions(store)) == (2, 2)


async def test_a_regeneration_can_change_inputs(store: Store) -> None:
    (job_id,) = await queue(store, 1, inputs={"6.text": "a fox"}, metadata={"page": 1}, file_path="fox.png")
    await fall(store, await lease(store))
    changed = wish("ignored", template=GRAPH, inputs={"6.text": "ein Füchslein"}, metadata={"page": 2})
    assert await store.run(ops.resubmit_jobs, [(job_id, changed)]) == [job_id]
    job = await job_of(store, job_id)
    assert (job.inputs, job.metadata) == ('{"6.text":"ein Füchslein"}', '{"page":2}')
    assert (job.template_hash, job.file_path, job.config_name) == (GRAPH.hash, "fox.png", "fox_1_0")
    assert (job.failure_class, job.error_trace) == (None, None)
    assert await store.run(ops.find_template, GRAPH.hash) == GRAPH


async def test_only_ended_items_can_be_regenerated(store: Store, database: Database) -> None:
    await queue(store, 2)
    running, waiting = await lease_one(store), (await store.run(ops.list_jobs, status=JobStatus.PENDING))[0]
    before = all_that_is_there(database)
    changed = wish("ignored", inputs={"6.text": "no"})
    assert (
        await store.run(ops.resubmit_jobs, [(running.lease.job_id, changed), (waiting.id, changed), (JobId(99), None)])
        == []
    )
    assert all_that_is_there(database) == before


async def test_a_request_lets_go_of_a_prompt_of_the_run_before(store: Store) -> None:
    """Else the old prompt would be taken over, and its result be that of the new request."""
    (job_id,) = await queue(store, 1)
    stale = await lease_one(store)
    await store.run(ops.cancel_jobs, [job_id])
    await store.run(ops.resubmit_jobs, [(job_id, wish("ignored", inputs={"6.text": "new"}))])
    assert await store.run(ops.open_attempts) == []
    assert (await job_of(store, job_id)).fence == stale.lease.fence + 2
    fresh = await lease_one(store)
    assert fresh.prompt_id != stale.prompt_id
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, stale.lease, ["stale.png"], None)
