"""Takes: a job that is rendered again keeps what it has made, and people say which result counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import LEASE_SECONDS, Database, broken, lease_one, wish

FIRST, SECOND = (Template.of({"1": {"class_type": name, "inputs": {}}}) for name in ("First", "Second"))


async def job_of(store: Store, name: str = "fox") -> Job:
    job = await store.run(ops.find_job_by_name, name)
    assert job is not None
    return job


async def render(store: Store, path: str) -> list[str]:
    """Render what waits to a file. Returns the files that were given up."""
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, [path], LEASE_SECONDS)
    return await store.run(ops.complete_job, leased.lease, [path], 1.0)


async def make_takes(store: Store, count: int = 2, **facts: Any) -> JobId:
    """A job with so many results: fox_1.png, fox_2.png, …, of which the last one counts."""
    new = wish("fox", template=FIRST, inputs={"1.width": 1}, pictures={"4.image": "old.png"}, **facts)
    [job_id] = await store.run(ops.submit_jobs, [new])
    assert job_id is not None
    await render(store, "fox_1.png")
    for number in range(2, count + 1):
        changed = wish("fox", template=SECOND, inputs={"1.width": number})
        assert await store.run(ops.resubmit_jobs, [(job_id, changed)]) == [job_id]
        assert await render(store, f"fox_{number}.png") == [], "no result is given up"
    return job_id


async def taken(store: Store, job_id: JobId) -> dict[int, tuple[str, ...]]:
    return {take.number: take.outputs for take in await store.run(ops.list_takes, job_id)}


async def test_a_job_that_is_rendered_again_keeps_its_result_until_and_after_there_is_another(store: Store) -> None:
    job_id = await make_takes(store, 1)
    assert await taken(store, job_id) == {}
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    job = await job_of(store)
    assert (job.status, job.take, job.outputs) == ("pending", 2, ("fox_1.png",))
    await render(store, "fox_2.png")
    assert (await job_of(store)).outputs == ("fox_2.png",)
    assert await taken(store, job_id) == {1: ("fox_1.png",)}


async def test_the_chosen_take_counts_with_all_that_it_was_made_with(store: Store) -> None:
    job_id = await make_takes(store, 3)
    before = await job_of(store)
    assert await store.run(ops.choose_take, job_id, 1)
    job = await job_of(store)
    assert (job.take, job.outputs, job.template_hash, job.inputs, job.pictures) == (
        1, ("fox_1.png",), FIRST.hash, '{"1.width":1}', '{"4.image":"old.png"}'
    )  # fmt: skip
    assert job.fence > before.fence
    assert await taken(store, job_id) == {2: ("fox_2.png",), 3: ("fox_3.png",)}
    assert await store.run(ops.choose_take, job_id, 3)
    assert (await job_of(store)).template_hash == SECOND.hash
    assert await taken(store, job_id) == {1: ("fox_1.png",), 2: ("fox_2.png",)}
    assert not await store.run(ops.choose_take, job_id, 3), "it counts already"
    assert not await store.run(ops.choose_take, job_id, 9)
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    assert (await job_of(store)).take == 4


async def test_a_take_that_failed_leaves_the_others_to_choose_from(store: Store) -> None:
    job_id = await make_takes(store, 1)
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, ["half.png"], LEASE_SECONDS)
    assert await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION)) == ["half.png"]
    assert await store.run(ops.choose_take, job_id, 1)
    job = await job_of(store)
    assert (job.status, job.error_trace, job.failure_class) == ("done", None, None)
    assert (await store.run(ops.count_jobs)).done == 1
    assert await taken(store, job_id) == {}


async def test_nothing_is_chosen_while_another_take_is_made(store: Store) -> None:
    job_id = await make_takes(store, 2)
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    assert not await store.run(ops.choose_take, job_id, 1)
    await lease_one(store)
    assert not await store.run(ops.choose_take, job_id, 1)


async def test_a_status_that_is_reset_by_hand_keeps_the_result_too(store: Store, database: Database) -> None:
    job_id = await make_takes(store, 1)
    database.by_hand("UPDATE jobs SET status = 'pending' WHERE config_name = 'fox'")
    assert await taken(store, job_id) == {1: ("fox_1.png",)}
    assert await render(store, "fox_2.png") == []


@pytest.mark.parametrize("how", ["removed", "pruned"])
async def test_what_takes_use_is_kept_as_long_as_they_are(store: Store, database: Database, how: str) -> None:
    job_id = await make_takes(store, 2)
    assert await store.run(ops.kept_pictures) == {"old.png"}
    assert await store.run(ops.bytes_of_unused_templates) == 0
    database.clock.advance(100)
    if how == "removed":
        await store.run(ops.remove_jobs, [job_id])
    else:
        assert await store.run(ops.remove_old_takes, await store.run(ops.moment_before, 200)) == 0
        assert await store.run(ops.remove_old_takes, await store.run(ops.moment_before, 50)) == 1
        assert (await job_of(store)).outputs == ("fox_2.png",)
    assert await taken(store, job_id) == {}
    assert await store.run(ops.kept_pictures) == frozenset()
    strays = await store.run(ops.list_strays)
    assert strays == (["fox_1.png"] if how == "pruned" else strays)
    assert await store.run(ops.bytes_of_unused_templates) > 0


async def test_a_job_is_as_young_as_its_newest_take_whichever_counts(store: Store, database: Database) -> None:
    job_id = await make_takes(store, 1)
    database.clock.advance(1_000)
    await store.run(ops.resubmit_jobs, [(job_id, None)])
    await render(store, "fox_2.png")
    assert await store.run(ops.choose_take, job_id, 1)
    before = await store.run(ops.moment_before, 500)
    assert await store.run(ops.prunable_jobs, before) == []
    part = await store.run(ops.remove_old_jobs, JobStatus.DONE, before, ops.EARLIEST, lambda *_: None)
    assert part.rows == 0
    database.clock.advance(1_000)
    assert await store.run(ops.prunable_jobs, await store.run(ops.moment_before, 500)) == [job_id]


async def test_a_chosen_take_has_no_star_of_another_and_its_grid_is_due_again_while_it_is_drawn(
    store: Store, database: Database
) -> None:
    job_id = await make_takes(store, 2)
    database.by_hand(f"UPDATE jobs SET rating = 1, batch_id = 'b' WHERE id = {job_id}")
    database.by_hand(
        "INSERT INTO batches (id, name, kind, status, generation, wants_grid, grid_generation, grid_worker) "
        "VALUES ('b', 'b', 'sweep', 'complete', 3, 1, 2, 'somebody')"
    )
    assert await store.run(ops.choose_take, job_id, 1)
    assert (await job_of(store)).rating is None
    [batch] = database.by_hand("SELECT grid_generation, grid_worker FROM batches WHERE id = 'b'")
    assert batch == {"grid_generation": 2, "grid_worker": None}


async def test_two_choices_at_once_lose_no_take(store: Store, database: Database) -> None:
    job_id = await make_takes(store, 3)
    other = database.open()
    try:
        for _ in range(10):
            await asyncio.gather(store.run(ops.choose_take, job_id, 1), other.run(ops.choose_take, job_id, 2))
            kept = await taken(store, job_id)
            counts = (await job_of(store)).take
            assert counts is not None
            assert sorted([*kept, counts]) == [1, 2, 3]
            await store.run(ops.choose_take, job_id, 3)
    finally:
        await other.close()
