"""What forecasts are made from: what waits and runs, the servers at work, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from comfyui_agent.domain.forecast import Schedule
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import needs_of_template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.domain.routing import Head, Routed, choose
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.store import Store
from support.graphs import sampled
from support.store_batches import FOX, queue
from support.stores import LEASE_SECONDS, SERVER, WORKER, Database, broken, submit_one

WARM, COLD, STAY = 10.0, 25.0, 120.0
OTHER_SERVER = "http://other"
TEMPLATE = Template.of(sampled("ink.safetensors", "fox", seed=1, steps=4))
OTHER = Template.of(sampled("oil.safetensors", "fox", seed=1, steps=4))
INK, OIL = (needs_of_template(each, {}) for each in (TEMPLATE, OTHER))
SETS = {needs.key: needs.model_set for needs in (INK, OIL)}


class ByModels:
    """Routes as an agent does whose servers can run everything."""

    def choose(self, _: Any, waiting: Sequence[Head], loaded: str | None, __: object) -> Routed:
        return choose([replace(head, model_set=SETS[head.needs]) for head in waiting], loaded, STAY)


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
    seconds = Schedule(await store.run(ops.work_left, [SERVER], batch_id), STAY).seconds()
    return None if seconds is None else round(seconds, 1)


async def test_a_new_workflow_takes_as_long_as_others_with_its_models_and_size(
    store: Store, database: Database
) -> None:
    for seconds in (COLD, WARM):
        await measure(store, database, seconds)
    new = needs_of_template(Template.of(sampled("ink.safetensors", "owl", seed=1, steps=4)), {})
    assert new.key != INK.key
    assert await store.run(ops.seconds_like, new) == pytest.approx(WARM)
    for unlike in (OIL, replace(new, pixels=1), replace(new, models=())):
        assert await store.run(ops.seconds_like, unlike) is None


async def test_the_end_of_a_batch_counts_what_stands_before_it_and_half_of_what_renders(
    store: Store, database: Database
) -> None:
    await queue(store, 4, template=TEMPLATE)
    assert await left(store, FOX) is None, "nothing was measured"
    await measure(store, database, COLD)
    assert await left(store, FOX) is None, "only a render that had to load was measured"
    await measure(store, database, WARM)
    assert await left(store, FOX) == await left(store) == 4 * WARM
    await submit_one(store, "before", template=TEMPLATE, priority=1)
    await submit_one(store, "same", template=TEMPLATE)
    await submit_one(store, "behind", template=TEMPLATE, priority=99)
    assert (await left(store, FOX), await left(store)) == (5 * WARM, 7 * WARM)
    await lease_one(store)
    assert (await left(store, FOX), await left(store)) == (4.5 * WARM, 6.5 * WARM)
    await submit_one(store, "oil", template=OTHER, priority=99)
    assert await left(store) == 7.5 * WARM + (COLD - WARM), "another model has to be loaded"
    await store.run(ops.pause_batch, FOX)
    assert await left(store, FOX) is None
    assert await left(store) == 3.5 * WARM + (COLD - WARM)


async def test_jobs_in_backoff_wait_as_others_do(store: Store, database: Database) -> None:
    await measure(store, database, COLD)
    await measure(store, database, WARM)
    await queue(store, 2, template=TEMPLATE)
    leased = await lease_one(store)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(45.0, charged=True))
    assert await left(store, FOX) == await left(store) == 2 * WARM


async def test_servers_at_work_count_and_those_out_of_work_do_not(store: Store, database: Database) -> None:
    async def servers(*configured: str) -> list[str]:
        return [each.server for each in await store.run(ops.work_left, configured) if each.server]

    await measure(store, database, COLD)
    await measure(store, database, WARM)
    await submit_one(store, "waits", template=TEMPLATE)
    database.clock.advance(11.0)
    assert await servers(OTHER_SERVER, SERVER) == sorted([OTHER_SERVER, SERVER])
    leased = await lease_one(store)
    assert await servers(SERVER, OTHER_SERVER) == [SERVER]
    await submit_one(store, "waits, too", template=TEMPLATE)
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    assert await servers() == [SERVER], "it gets the next one in a moment"
    await store.run(ops.pause_server, SERVER)
    assert await servers() == []
    await store.run(ops.resume_server, SERVER)
    database.clock.advance(11.0)
    assert await servers() == []


NEEDS = "INSERT INTO needs (key, workflow, model_set, models, classes, pixels) VALUES "
"""Fast has rendered ink, slow both. A poster is another workflow; nothing is known of what is new."""
MEASURED = (
    ("ink", "portrait", "ink", 512),
    ("oil", "portrait", "oil", 512),
    ("ink-1024", "portrait", "ink", 1024),
    ("poster", "poster", "ink", 512),
)
TIMINGS = "('ink', 'fast', 9, 1.0, 1, 5.0), ('ink', 'slow', 9, 2.0, 1, 8.0), ('oil', 'slow', {renders}, 6.0, 1, 16.0)"


@pytest.mark.parametrize(
    ("needs", "seconds", "load_seconds"),
    [
        ("ink", {"fast": 1.0, "slow": 2.0, "new": 1.5}, 5.0),
        ("oil", {"fast": 1.0, "slow": 6.0, "new": 6.0}, 10.0),
        ("ink-1024", {"fast": 3.0, "slow": 3.0, "new": 3.0}, 5.0),
        ("poster", {"fast": 3.0, "slow": 3.0, "new": 3.0}, 5.0),
        ("unknown", {"fast": 3.0, "slow": 3.0, "new": 3.0}, 20.0 / 3),
    ],
)
async def test_what_was_not_measured_takes_as_long_as_what_is_most_like_it(
    store: Store, database: Database, needs: str, seconds: dict[str, float], load_seconds: float
) -> None:
    rows = ", ".join(f"('{key}', '{flow}', '{models}', '[]', '[]', {px})" for key, flow, models, px in MEASURED)
    database.by_hand(f"{NEEDS} {rows}; INSERT INTO timings VALUES {TIMINGS.format(renders=9)}")
    await submit_one(store, "one")
    database.by_hand(f"UPDATE jobs SET needs = '{needs}'")
    found = await store.run(ops.work_left, ["fast", "slow", "new"])
    assert {each.server: each.seconds for each in found} == seconds
    assert {round(each.load_seconds, 6) for each in found} == {round(load_seconds, 6)}


async def test_a_server_counts_for_models_it_never_had_until_others_had_them_often(
    store: Store, database: Database
) -> None:
    rows = ", ".join(f"('{key}', '{flow}', '{models}', '[]', '[]', {px})" for key, flow, models, px in MEASURED)
    database.by_hand(f"{NEEDS} {rows}; INSERT INTO timings VALUES {TIMINGS.format(renders=98)}")
    await submit_one(store, "one")
    database.by_hand("UPDATE jobs SET needs = 'oil'")
    assert {each.server for each in await store.run(ops.work_left, ["fast", "slow"])} == {"fast", "slow"}
    database.by_hand("UPDATE timings SET runs = 99 WHERE needs = 'oil'")
    assert {each.server for each in await store.run(ops.work_left, ["fast", "slow"])} == {"slow"}
    assert {each.server for each in await store.run(ops.work_left, ["fast"])} == {""}, "it waits, and nobody can run it"
