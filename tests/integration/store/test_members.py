"""Members of a batch by their place: those that are asked for, however many there are."""

from __future__ import annotations

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.store_batches import FOX, queue
from support.stores import wish


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([3, 4, 5], [3, 4, 5]),
        ([9, 1, 4, 1], [1, 4, 9]),
        (range(8, 20), [8, 9]),
        ([0], [0]),
        ([-1, 10, 11], []),
        ([], []),
    ],
)
async def test_those_that_are_asked_for_come_in_their_order(store: Store, asked: list[int], found: list[int]) -> None:
    await queue(store, 10)
    await queue(store, 3, "other_1")
    jobs = await store.run(ops.members_at, FOX, asked)
    assert [(job.batch_id, job.batch_index) for job in jobs] == [(FOX, index) for index in found]


async def test_those_that_someone_put_in_by_hand_do_not_displace_others(store: Store) -> None:
    await queue(store, 3)
    await store.run(ops.fill_batch, [wish(f"twin_{number}", batch_id=FOX, batch_index=1) for number in range(5)])
    await store.run(ops.fill_batch, [wish("lost", batch_id=FOX)])
    jobs = await store.run(ops.members_at, FOX, range(3))
    assert [job.batch_index for job in jobs] == [0, 1, 1, 1, 1, 1, 1, 2]
    assert [job.config_name for job in await store.run(ops.members_without_place, FOX, 5)] == ["lost"]
