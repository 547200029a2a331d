"""What forecasts are made from: what waits, what runs where, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from comfyui_agent.domain.forecast import Backlog, seconds_left
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import needs_of_template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.domain.routing import Choice, Decline, Head, ServerSet, choose
from comfyui_agent.store import backlog
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from support.graphs import sampled
from support.store_batches import FOX, batch_of, queue
from support.stores import LEASE_SECONDS, SERVER, WORKER, Database, broken, submit_one

WARM, COLD, STAY = 10.0, 25.0, 120.0
TEMPLATE = Template.of(sampled("ink.safetensors", "fox", seed=1, steps=4))
OTHER = Template.of(sampled("oil.safetensors", "fox", seed=1, steps=4))


SETS = {needs.key: needs.model_set for needs in (needs_of_template(each, {}) for each in (TEMPLATE, OTHER))}


class ByModels:
    """Routes as an agent does whose servers can run everything."""

    def choose(self, _: Any, waiting: Sequence[Head], state: ServerSet, __: object) -> Choice | Decline | None:
        return choose([replace(head, model_set=SETS[head.needs]) for head in waiting], state, STAY)


async def lease_one(store: Store) -> Leased:
    window, ids = Window(SERVER, 16), [mint_prompt_id()]
    (leased,) = await store.run(ops.lease_jobs, WORKER, window, ids, LEASE_SECONDS, route=ByModels())
    return leased


async def measure(store: Store, database: Database, seconds: float, template: Template = TEMPLATE) -> None:
    await submit_one(store, f"measured_{seconds:g}", template=template, priority=-1)
    leased = await lease_one(store)
    database.clock.advance(seconds)
    await store.run(ops.complete_job, leased.lease, ["a.png"], seconds)


async def left(store: Store, batch_id: str | None = None) -> float | None:
    batch = await batch_of(store, batch_id) if batch_id else None
    found = await store.run(ops.read_backlog, [SERVER], batch)
    seconds = seconds_left(found, STAY)
    return None if seconds is None else round(seconds, 1)


async def test_the_end_of_a_batch_counts_what_stands_before_it_and_what_renders(
    store: Store, database: Database
) -> None:
    await queue(store, 4, template=TEMPLATE)
    assert await left(store, FOX) is None, "nothing was measured"
    await measure(store, database, COLD)
    assert await left(store, FOX) is None, "only a render that had to load was measured"
    await measure(store, database, WARM)
    assert await left(store, FOX) == await left(store) == 4 * WARM
    await submit_one(store, "before", template=TEMPLATE, priority=1)
    await submit_one(store, "behind", template=TEMPLATE, priority=99)
    assert (await left(store, FOX), await left(store)) == (5 * WARM, 6 * WARM)
    await lease_one(store)
    database.clock.advance(4.0)
    assert (await left(store, FOX), await left(store)) == (5 * WARM - 4.0, 6 * WARM - 4.0)
    await submit_one(store, "oil", template=OTHER, priority=99)
    assert await left(store) == 7 * WARM + (COLD - WARM) - 4.0, "another model has to be loaded"


async def test_a_backoff_is_waited_for_and_what_is_paused_is_not(store: Store, database: Database) -> None:
    await measure(store, database, COLD)
    await measure(store, database, WARM)
    await queue(store, 2, template=TEMPLATE)
    leased = await lease_one(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(45.0, charged=True))
    assert await left(store, FOX) == 45.0
    await submit_one(store, "loose", template=TEMPLATE)
    await store.run(ops.pause_batch, FOX)
    assert await left(store) == WARM


async def test_servers_at_work_count_and_those_out_of_work_do_not(store: Store, database: Database) -> None:
    async def servers(*configured: str) -> list[str]:
        return list((await store.run(ops.read_backlog, configured)).servers)

    assert await servers(SERVER, "http://idle") == [SERVER, "http://idle"]
    await submit_one(store, "a", template=TEMPLATE)
    leased = await lease_one(store)
    assert await servers(SERVER, "http://idle") == [SERVER]
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    assert await servers() == [SERVER], "it gets the next one in a moment"
    await store.run(ops.pause_server, SERVER)
    assert await servers() == []
    await store.run(ops.resume_server, SERVER)
    database.clock.advance(backlog.JUST_NOW + 1.0)
    assert await servers() == []


async def test_jobs_beyond_those_that_are_counted_are_shared_out_by_their_ids(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "COUNTED", 5)
    for start, template in enumerate([TEMPLATE, OTHER, OTHER]):
        for number in range(10):
            await submit_one(store, f"{start}_{number}", template=template)
    await submit_one(store, "held", template=TEMPLATE)
    database.by_hand("UPDATE jobs SET hold = 'paused' WHERE config_name = 'held'")
    found: Backlog = await store.run(ops.read_backlog, [SERVER])
    assert sorted(each.jobs for each in found.waiting) == [11, 18]
