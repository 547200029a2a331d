"""Prompts that clients of ComfyUI posted: one job each, told and listed as their jobs end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind, BatchStatus
from comfyui_agent.domain.jobs import GATEWAY, JobId, Template
from comfyui_agent.domain.retry_policy import GiveUp
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.posted_prompts import NewFile, NewPrompt, PostedPrompt
from comfyui_agent.store.store import Store
from support.stores import Database, broken, lease_one, wish

GRAPH = {"1": {"class_type": "EmptyImage", "inputs": {"width": 64}}}
HOUR = 3600.0


async def post(store: Store, name: str, client: str | None = "me", **facts: Any) -> JobId:
    job = wish(name, source=GATEWAY, template=Template.of(GRAPH), created_by=facts.pop("created_by", None))
    prompt = {"number": None, "is_front": False, "extra_data": {"client_id": client}, "targets": ["1"]} | facts
    made = await store.run(ops.post_prompt, job, NewPrompt(client, **prompt))
    assert made is not None
    return made[0]


async def find(store: Store, name: str) -> PostedPrompt:
    found = await store.run(ops.find_prompt, name)
    assert found is not None
    return found


async def untold(store: Store, clients: list[str], seconds: float) -> list[JobId]:
    prompts, count = await store.run(ops.news_for_clients, clients, seconds, 10)
    assert count == await store.run(ops.count_open_prompts)
    return [prompt.job_id for prompt in prompts]


async def finish(store: Store) -> None:
    await store.run(ops.complete_job, (await lease_one(store)).lease, ["cat.png"], 1.0)


async def test_a_posted_prompt_is_a_job_with_what_its_client_sent(store: Store) -> None:
    await post(store, "first", extra_data={"client_id": "me", "extra_pnginfo": {"workflow": {"id": "w"}}})
    found = await find(store, "first")
    assert (found.client_id, found.targets, found.status, found.graph) == ("me", ("1",), "pending", GRAPH)
    assert found.extra_data["extra_pnginfo"] == {"workflow": {"id": "w"}}
    leased = await lease_one(store)
    assert (leased.is_posted, leased.job_file) == (True, None)
    client = await store.run(ops.prompt_of_job, leased.lease.job_id)
    assert client is not None
    assert (client.prompt_id, client.client_id, client.targets) == ("first", "me", ("1",))


async def test_an_id_that_is_known_makes_no_second_job(store: Store, database: Database) -> None:
    await post(store, "first")
    again = NewPrompt("you", None, False, {}, [])
    assert await store.run(ops.post_prompt, wish("first", source=GATEWAY), again) is None
    assert (await find(store, "first")).client_id == "me"
    assert database.by_hand("SELECT count(*) AS jobs FROM jobs") == [{"jobs": 1}]


async def test_numbers_grow_and_what_goes_to_the_front_has_a_negative_one(store: Store) -> None:
    await post(store, "first")
    await post(store, "front", is_front=True)
    await post(store, "own", number=0.5)
    numbers = {name: (await find(store, name)).number for name in ("first", "front", "own")}
    assert numbers == {"first": 1.0, "front": -2.0, "own": 0.5}


async def test_what_waits_or_runs_is_open_and_the_ended_are_listed_newest_first(store: Store) -> None:
    ids = [await post(store, name) for name in ("a", "b", "c")]
    await finish(store)
    await finish(store)
    assert [each.prompt_id for each in await store.run(ops.open_prompts, None, 10)] == ["c"]
    assert await store.run(ops.count_open_prompts) == 1
    assert await store.run(ops.ended_prompts, None, 10) == [ids[1], ids[0]]
    assert [each.prompt_id for each in await store.run(ops.find_prompts, [ids[2], 99, ids[0]])] == ["c", "a"]


async def test_what_a_client_queues_at_one_time_is_a_batch(store: Store, database: Database) -> None:
    await post(store, "alone")
    await finish(store)
    for name in ("a", "b", "c"):
        await post(store, name)
    await post(store, "other client", "you")
    await post(store, "other token", created_by=1)
    await post(store, "nobody's", None)
    (batch,) = await store.run(ops.newest_batches)
    assert (batch.kind, batch.name, batch.pending) == (BatchKind.CLIENT, "client me", 3)
    rows = database.by_hand("SELECT config_name FROM jobs WHERE batch_id IS NOT NULL ORDER BY batch_index")
    assert [row["config_name"] for row in rows] == ["a", "b", "c"]
    for _ in range(6):
        await finish(store)
    assert (await store.run(ops.newest_batches))[0].status is BatchStatus.COMPLETE
    for name in ("d", "e"):
        await post(store, name)
    assert sorted(each.total for each in await store.run(ops.newest_batches)) == [2, 3]


async def test_a_prompt_joins_no_batch_that_has_ended(store: Store) -> None:
    for name in ("a", "b"):
        await post(store, name)
    (batch,) = await store.run(ops.newest_batches)
    await lease_one(store)
    await store.run(ops.begin_cancel, batch.id)
    await post(store, "c")
    assert [(each.status, each.total) for each in await store.run(ops.newest_batches)] == [(BatchStatus.CANCELLED, 2)]


async def test_each_caller_sees_what_was_made_with_their_token(store: Store) -> None:
    mine, theirs = await post(store, "mine", created_by=1), await post(store, "theirs", created_by=2)
    assert [each.job_id for each in await store.run(ops.open_prompts, 1, 10)] == [mine]
    await finish(store)
    await finish(store)
    assert await store.run(ops.ended_prompts, 2, 10) == [theirs]


async def test_a_client_is_told_of_an_end_once(store: Store, database: Database) -> None:
    job_id = await post(store, "first")
    await post(store, "of another", client="you")
    assert await untold(store, ["me"], HOUR) == []
    await finish(store)
    assert await untold(store, ["me", "them"], HOUR) == [job_id]
    database.clock.advance(2 * HOUR)
    assert await untold(store, ["me"], HOUR) == []
    await store.run(ops.note_told, [job_id])
    assert await untold(store, ["me"], 9 * HOUR) == []


async def test_a_retry_by_hand_opens_a_prompt_again_and_its_end_is_told_again(store: Store, database: Database) -> None:
    job_id = await post(store, "first")
    leased = await lease_one(store)
    failure = broken()
    await store.run(ops.fail_job, leased.lease, failure, GiveUp(failure.kind))
    await store.run(ops.note_told, [job_id])
    database.by_hand("UPDATE jobs SET status = 'pending'")
    assert (await find(store, "first")).ended_at is None
    await finish(store)
    assert await untold(store, ["me"], HOUR) == [job_id]


async def test_what_a_history_said_is_kept_under_a_lease(store: Store) -> None:
    await post(store, "first")
    leased = await lease_one(store)
    said = replace(leased.lease, entry='{"outputs": {"1": {"images": []}}}')
    await store.run(ops.complete_job, said, [], 1.0)
    found = await find(store, "first")
    assert (found.run_id, found.entry) == (leased.prompt_id, {"outputs": {"1": {"images": []}}})
    with pytest.raises(LeaseLost):
        await store.run(ops.complete_job, replace(said, entry='{"outputs": {}}'), [], 1.0)
    assert (await find(store, "first")).entry == found.entry


async def test_what_is_cleared_leaves_the_listing_and_not_the_books(store: Store) -> None:
    job_id = await post(store, "first")
    await post(store, "open")
    await finish(store)
    assert await store.run(ops.hide_prompts, [job_id, 2]) == 1
    assert await store.run(ops.ended_prompts, None, 10) == []
    assert (await find(store, "first")).status == "done"


async def test_a_job_that_is_removed_takes_its_prompt_along(store: Store, database: Database) -> None:
    job_id = await post(store, "first")
    await store.run(ops.cancel_jobs, [job_id])
    await store.run(ops.remove_jobs, [job_id])
    assert database.by_hand("SELECT count(*) AS prompts FROM posted_prompts") == [{"prompts": 0}]


async def test_posted_prompts_have_no_job_files(store: Store) -> None:
    await post(store, "first")
    assert await store.run(ops.pending_sources) == []
    await finish(store)
    assert await store.run(ops.finished_files, (0.0, HOUR)) == []


async def test_an_upload_is_found_by_its_path_and_replaced_by_the_next(store: Store) -> None:
    await store.run(ops.keep_upload, "input/cat.png", "a.png")
    await store.run(ops.keep_upload, "input/cat.png", "b.png")
    assert await store.run(ops.find_uploads, ["input/cat.png", "input/dog.png"]) == {"input/cat.png": "b.png"}
    assert "b.png" in await store.run(ops.kept_pictures)


async def test_files_are_counted_by_prefix_over_all_prompts_and_keep_their_names(store: Store) -> None:
    first, second = await post(store, "first"), await post(store, "second")
    files = [NewFile(f"output/x/{name}.png", "output/cat", ".png") for name in "ab"]
    named = await store.run(ops.name_files, first, files)
    assert named == {"output/x/a.png": "output/cat_00001_.png", "output/x/b.png": "output/cat_00002_.png"}
    other = NewFile("output/y/a.png", "output/cat", ".png")
    shown = NewFile("temp/t.png", "temp/t", ".png", "temp/t.png")
    assert await store.run(ops.name_files, second, [other, shown]) == {
        "output/y/a.png": "output/cat_00003_.png",
        "temp/t.png": "temp/t.png",
    }
    assert await store.run(ops.name_files, first, [*files, shown]) == {**named, "temp/t.png": "temp/t_00001_.png"}
    assert await store.run(ops.owner_of_file_seen, "output/cat_00003_.png") == (second, "output/y/a.png")
