"""The version of a store: whoever remembers it knows whether to look again."""

from __future__ import annotations

import asyncio
import time

import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import Database, lease, submit_one

PATIENCE = 5.0


async def goes_up(store: Store, before: int) -> bool:
    deadline = time.monotonic() + PATIENCE
    while store.version == before:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return store.version > before


async def test_it_has_gone_up_when_a_change_of_its_own_returns(store: Store) -> None:
    before = store.version
    await submit_one(store, "a")
    assert store.version > before
    before = store.version
    await lease(store)
    assert store.version > before


async def test_it_goes_up_soon_after_someone_else_changed_something(store: Store, database: Database) -> None:
    other = database.open()
    before = store.version
    await submit_one(other, "a")
    assert await goes_up(store, before)
    before = store.version
    database.by_hand("UPDATE jobs SET priority = 1")
    assert await goes_up(store, before)


async def test_it_stays_when_nothing_was_changed(store: Store, database: Database) -> None:
    await submit_one(store, "a")
    await lease(store)
    before = store.version
    await store.run(ops.read_overview)
    assert await lease(store) == []
    assert await store.run(ops.cancel_jobs, []) == []
    assert await ops.index_names(store) == 1
    assert store.version == before + 1
    assert await ops.index_names(store) == 0
    database.by_hand("SELECT * FROM jobs")
    assert store.version == before + 1


async def test_it_stays_when_a_change_was_undone(store: Store) -> None:
    await submit_one(store, "a")
    before = store.version

    def fall_over(session: object) -> None:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        await store.driver.write(fall_over)
    assert store.version == before
