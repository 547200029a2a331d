"""Results by what people think of them and by what they were made with: each is found, once, newest first."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.jobs import REJECT, STAR, JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter, Rated
from comfyui_agent.store.rows import time_text
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.prompts import Prompts
from support.stores import KINDS, Database, lease_one, submit_one, wish

BEGINNING = datetime(2025, 1, 1, tzinfo=timezone.utc)
GRAPH: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "dream.safetensors"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox", "clip": ["1", 1]}},
    "3": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry", "clip": ["1", 1]}},
    "4": {"class_type": "EmptyLatentImage", "inputs": {"width": 640, "height": 320, "batch_size": 1}},
    "5": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 7, "model": ["1", 0], "positive": ["2", 0], "negative": ["3", 0], "latent_image": ["4", 0]
        },
    },
}  # fmt: skip
TEMPLATE = Template.of(GRAPH)
LETTERS = "aAbz0_%\"'*^: äİ€😀"
SMALL = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


async def made(store: Store, name: str, text: str = "", **more: Any) -> JobId:
    """A result, with a text in place of the fox."""
    await submit_one(store, name, template=TEMPLATE, inputs={"2.text": text} if text else {}, **more)
    leased = await lease_one(store)
    await store.run(ops.complete_job, leased.lease, [f"{name}.png"], 1.0)
    return leased.lease.job_id


async def index_all(store: Store, most: int = 3) -> int:
    prompts, count = Prompts(store), 0
    while part := await prompts.index(most, lag=-1.0):
        count += part
    return count


async def shown(store: Store, limit: int = 2, **wanted: Any) -> list[str]:
    """The names on all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.run(ops.job_page, JobFilter(status=JobStatus.DONE, **wanted), cursor, limit)
        found += [job.config_name for job in page.jobs]
        if (cursor := page.cursor) is None:
            return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_result_that_is_asked_for_is_shown_once_in_its_order_and_no_other(tmp_path: Path, kind: str) -> None:
    database, loop = KINDS[kind](tmp_path), asyncio.new_event_loop()
    store = database.open()
    results = st.tuples(
        st.integers(0, 5),
        st.sampled_from([None, STAR, REJECT]),
        st.text(LETTERS, max_size=8).map(str.strip),
        st.sampled_from(JobStatus),
    )

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        rows=st.lists(results, min_size=1, max_size=12),
        rated=st.sampled_from([None, *Rated]),
        prompt=st.text(LETTERS, max_size=6),
        since=st.none() | st.integers(0, 5),
        until=st.none() | st.integers(0, 6),
        limit=st.integers(1, 5),
    )
    def check(
        rows: list[tuple[int, int | None, str, JobStatus]],
        rated: Rated | None,
        prompt: str,
        since: int | None,
        until: int | None,
        limit: int,
    ) -> None:
        database.empty()
        database.by_hand("DELETE FROM about WHERE key = 'prompts_indexed'")
        jobs = [wish(str(at), template=TEMPLATE, inputs={"2.text": text}) for at, (_, _, text, _) in enumerate(rows)]
        loop.run_until_complete(store.run(ops.submit_jobs, jobs))
        for at, (minute, rating, _, status) in enumerate(rows):
            facts = f"end_time = '{time_text(moment(minute))}', rating = {rating or 'NULL'}, status = '{status.value}'"
            database.by_hand(f"UPDATE jobs SET {facts} WHERE config_name = '{at}'")
        loop.run_until_complete(index_all(store, 7))
        bounds = {"since": moment(since), "until": moment(until)}
        found = loop.run_until_complete(shown(store, limit, rated=rated, prompt=prompt, **bounds))
        expected = [
            (minute, at)
            for at, (minute, rating, text, status) in enumerate(rows)
            if status is JobStatus.DONE
            and (rated is not Rated.STARRED or rating == STAR)
            and (rated is not Rated.KEPT or rating != REJECT)
            and (rated is not Rated.REJECTED or rating == REJECT)
            and (since is None or minute >= since)
            and (until is None or minute < until)
            and all(word.translate(SMALL) in " ".join(text.split()).translate(SMALL) for word in prompt.split())
        ]
        assert found == [str(at) for _, at in sorted(expected, reverse=True)]

    try:
        check()
    finally:
        loop.run_until_complete(database.close())
        loop.close()


def moment(minute: int | None) -> datetime | None:
    return None if minute is None else BEGINNING - timedelta(days=1) + timedelta(minutes=minute)


async def test_a_model_is_found_by_its_whole_name(store: Store) -> None:
    await made(store, "dream")
    await made(store, "other", pictures={})
    assert await shown(store, model="dream.safetensors") == ["other", "dream"]
    assert await shown(store, model="ream.safetensors") == []


async def test_members_of_a_batch_are_found_by_the_text_that_their_batch_keeps(store: Store) -> None:
    shared = {TEMPLATE.hash: {"2.text": "a lighthouse at dusk"}}
    await store.run(ops.create_batch, NewBatch("b_1", "b", BatchKind.SWEEP, {"shared": shared}), None)
    await store.run(ops.fill_batch, [wish("member", batch_id="b_1", batch_index=0, template=TEMPLATE)])
    await store.run(ops.open_batch, "b_1")
    leased = await lease_one(store)
    await store.run(ops.complete_job, leased.lease, ["a.png"], 1.0)
    assert await index_all(store) == 1
    assert await shown(store, prompt="LIGHTHOUSE dusk") == ["member"]
    assert await shown(store, prompt="lighthouse", batch_id="b_1", rated=Rated.KEPT) == ["member"]
    [facts] = (await Prompts(store).made([leased.lease.job_id])).values()
    assert (facts.prompt, facts.seed, facts.size) == ("a lighthouse at dusk", 7, (640, 320))


async def test_what_ends_in_the_same_moment_is_not_passed_by(store: Store, database: Database) -> None:
    prompts = Prompts(store)
    await made(store, "first", "a knight")
    assert await prompts.index() == 0, "another one may still end before it"
    await made(store, "second", "a knight")
    database.clock.advance(5)
    assert (await prompts.index(), await prompts.index()) == (2, 0)
    assert await shown(store, prompt="knight") == ["second", "first"]


async def test_a_result_that_is_rendered_again_is_found_by_its_new_text_and_has_no_star(
    store: Store, database: Database
) -> None:
    job = await made(store, "fox", "a red fox")
    assert await index_all(store) == 1
    await store.run(ops.rate_jobs, [job], STAR)
    assert await shown(store, prompt="red", rated=Rated.STARRED) == ["fox"]
    inputs = json.dumps({"2.text": "a blue owl"})
    database.by_hand(f"UPDATE jobs SET status = 'pending', inputs = '{inputs}' WHERE id = {job}")
    assert await shown(store) == []
    database.clock.advance(1)
    leased = await lease_one(store)
    await store.run(ops.complete_job, leased.lease, ["owl.png"], 1.0)
    assert await index_all(store) == 1
    assert (await shown(store, prompt="red"), await shown(store, prompt="owl")) == ([], ["fox"])
    assert await shown(store, rated=Rated.STARRED) == []


async def test_only_results_are_rated_and_no_agent_is_woken(store: Store) -> None:
    done, waiting = await made(store, "done"), await submit_one(store, "waiting")
    woken: list[None] = []
    store.on_change(lambda: woken.append(None))
    assert await store.run(ops.rate_jobs, [done, waiting], REJECT) == 1
    assert woken == []
    assert [await shown(store, rated=each) for each in (None, *Rated)] == [["done"], [], [], ["done"]]
    await store.run(ops.rate_jobs, [done], None)
    assert await shown(store, rated=Rated.KEPT) == ["done"]


async def test_what_is_removed_is_forgotten_and_the_index_can_be_made_anew(store: Store, database: Database) -> None:
    jobs = [await made(store, str(number), f"a castle, number {number}") for number in range(5)]
    assert await index_all(store) == 5
    await store.run(ops.remove_jobs, jobs[1:2])
    assert database.by_hand("SELECT count(*) AS rows FROM prompts") == [{"rows": 4}]
    assert await shown(store, prompt="castle") == ["4", "3", "2", "0"]
    database.by_hand("DELETE FROM about WHERE key = 'prompts_indexed'")
    assert await index_all(store, 2) == 4
    assert await shown(store, prompt="castle") == ["4", "3", "2", "0"]


async def test_two_who_index_at_the_same_time_index_each_result_once(store: Store) -> None:
    for number in range(3):
        await made(store, str(number), "a castle")
    found = await store.run(ops.next_prompts, 2, -1.0)
    assert found is not None
    texts = [(each.id, "a castle") for each in found.results]
    assert [await store.run(ops.add_prompts, found, texts) for _ in range(2)] == [2, 0]
    assert await index_all(store) == 1
    assert await shown(store, prompt="castle") == ["2", "1", "0"]


@pytest.mark.parametrize("inputs", ["[]", "{", '{"2.text": 5}', "null"])
async def test_strange_rows_are_passed_by(store: Store, database: Database, inputs: str) -> None:
    await made(store, "before", "a castle")
    await made(store, "strange", "a castle")
    database.by_hand(f"UPDATE jobs SET inputs = '{inputs}', template_hash = 'gone' WHERE config_name = 'strange'")
    await made(store, "after", "a castle")
    assert await index_all(store, 1) == 3
    assert await shown(store, prompt="castle") == ["after", "before"]
