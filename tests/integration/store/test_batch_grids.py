"""Grids: one is due for each completion, one worker makes it, and a dead one's claim is taken."""

from __future__ import annotations

import asyncio

import pytest

from comfyui_agent.domain.jobs import JobId
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.store_batches import (
    FOX,
    batch_of,
    land,
    lease_of,
    look,
    queue,
)
from support.stores import (
    HOST,
    WORKER,
    Database,
    lease,
    register,
)


async def complete_with_grid(store: Store, batch_id: str = FOX) -> list[JobId]:
    await register(store, WORKER, "other", "dead", "alive", "one", "two", "three", "four")
    ids = await queue(store, 1, batch_id, wants_grid=True)
    await land(store, await lease_of(store, batch_id))
    return ids


async def test_a_grid_is_due_when_the_batch_is_complete_and_not_before(store: Store) -> None:
    await register(store, WORKER)
    await queue(store, 1, "plain")
    await queue(store, 1, wants_grid=True)
    assert await store.run(ops.claim_grid, WORKER, HOST) is None
    await land(store, await lease(store, most=9))
    assert (await batch_of(store)).is_grid_due
    assert not await store.run(ops.is_queue_idle)
    assert not await store.run(ops.is_batch_idle, FOX)
    assert await store.run(ops.claim_grid, WORKER, HOST) == (FOX, 1)
    assert not await store.run(ops.is_queue_idle)
    assert await store.run(ops.settle_grid, FOX, WORKER, 1, grid="grid.png") is True
    found = await batch_of(store)
    assert (found.grid, found.grid_problem, found.is_grid_due) == ("grid.png", None, False)
    assert await store.run(ops.is_queue_idle)
    assert await store.run(ops.is_batch_idle, FOX)
    assert await store.run(ops.claim_grid, WORKER, HOST) is None


@pytest.mark.parametrize("end", ["cancel", "expire"])
async def test_a_batch_that_was_given_up_has_no_grid_due(store: Store, database: Database, end: str) -> None:
    await queue(store, 2, wants_grid=True)
    await (ops.cancel_batch(store, FOX) if end == "cancel" else look(store, database, 60))
    assert (await batch_of(store)).status.has_ended
    assert await store.run(ops.claim_grid, WORKER, HOST) is None
    assert await store.run(ops.is_queue_idle)


async def test_of_many_workers_one_makes_the_grid(store: Store, database: Database) -> None:
    stores = [store, database.open(), database.open()]
    await complete_with_grid(store)
    workers = {f"{place}-{number}": each for number in range(5) for place, each in enumerate(stores)}
    await register(store, *workers)
    claims = await asyncio.gather(*(each.run(ops.claim_grid, worker, HOST) for worker, each in workers.items()))
    assert [claim for claim in claims if claim is not None] == [(FOX, 1)]


async def test_grids_of_several_batches_are_made_by_several_workers(store: Store) -> None:
    for name in "abc":
        await complete_with_grid(store, name)
    claims = [await store.run(ops.claim_grid, worker, HOST) for worker in ("one", "two", "three", "four")]
    assert sorted(claim for claim in claims if claim is not None) == [("a", 1), ("b", 1), ("c", 1)]
    assert claims[3] is None
    await store.run(ops.release_grids, "two")
    assert await store.run(ops.claim_grid, "four", HOST, "c") is None
    assert await store.run(ops.claim_grid, "four", HOST) == claims[1]


async def test_the_claim_of_a_dead_worker_is_taken_and_its_late_word_does_not_count(store: Store) -> None:
    await complete_with_grid(store)
    await store.run(ops.claim_grid, "dead", HOST)
    assert await store.run(ops.claim_grid, "alive", HOST) is None
    await store.run(ops.remove_agent, "dead")
    assert await store.run(ops.claim_grid, "alive", HOST) == (FOX, 1)
    assert await store.run(ops.settle_grid, FOX, "dead", 1, grid="old.png") is False
    assert (await batch_of(store)).grid is None
    assert await store.run(ops.settle_grid, FOX, "alive", 1, grid="new.png") is True
    assert (await batch_of(store)).grid == "new.png"


async def test_a_grid_is_due_again_after_the_generation_that_came_meanwhile(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.run(ops.claim_grid, WORKER, HOST)
    await store.run(ops.resubmit_jobs, [(ids[0], None)])
    assert await store.run(ops.settle_grid, FOX, WORKER, 1, grid="first.png") is True
    assert await store.run(ops.claim_grid, WORKER, HOST) is None
    await land(store, await lease(store))
    assert (await batch_of(store)).is_grid_due
    assert (await batch_of(store)).grid == "first.png"
    assert await store.run(ops.claim_grid, WORKER, HOST) == (FOX, 2)
    await store.run(ops.settle_grid, FOX, WORKER, 2, grid="second.png")
    assert await store.run(ops.claim_grid, WORKER, HOST) is None
    assert (await batch_of(store)).grid == "second.png"


async def test_a_grid_begun_before_a_generation_and_settled_after_it_stands_for_the_one_before(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.run(ops.claim_grid, WORKER, HOST)
    await store.run(ops.resubmit_jobs, [(ids[0], None)])
    await land(store, await lease(store))
    assert await store.run(ops.claim_grid, "other", HOST) is None
    await store.run(ops.settle_grid, FOX, WORKER, 1, grid="first.png")
    assert await store.run(ops.claim_grid, "other", HOST) == (FOX, 2)


async def test_a_grid_that_cannot_be_made_is_said_once_and_not_tried_for_ever(store: Store) -> None:
    await complete_with_grid(store)
    await store.run(ops.claim_grid, WORKER, HOST)
    await store.run(ops.settle_grid, FOX, WORKER, 1, problem="no room: free some")
    found = await batch_of(store)
    assert (found.grid, found.grid_problem, found.is_grid_due) == (None, "no room: free some", False)
    *_, alert = await store.run(ops.events_after, 0)
    assert (alert.name, alert.batch_id, alert.message) == ("alert.grid", FOX, "no room: free some")
    assert await store.run(ops.claim_grid, WORKER, HOST) is None
    assert await store.run(ops.is_queue_idle)


async def test_a_grid_made_by_hand_is_the_one_that_was_due(store: Store) -> None:
    ids = await complete_with_grid(store)
    await store.run(ops.note_grid, await batch_of(store), "mine.png")
    assert ((await batch_of(store)).grid, await store.run(ops.claim_grid, WORKER, HOST)) == ("mine.png", None)
    await store.run(ops.resubmit_jobs, [(ids[0], None)])
    await store.run(ops.note_grid, await batch_of(store), "half.png")
    await land(store, await lease(store))
    assert await store.run(ops.claim_grid, WORKER, HOST) == (FOX, 2)
