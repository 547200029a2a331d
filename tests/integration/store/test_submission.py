"""A submitted job is in the database, whole, or not at all."""

from __future__ import annotations

import json

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import BatchTaken
from comfyui_agent.store.records import Holder
from comfyui_agent.store.store import Store
from support.stores import Database, submit_one, wish

GRAPH = {"6": {"class_type": "CLIPTextEncode", "inputs": {"text": "Käse 🧀"}}}


async def test_a_job_is_stored_with_all_that_was_said_about_it(store: Store, database: Database) -> None:
    template = Template.of(GRAPH)
    job_id = await submit_one(
        store,
        "knight.yaml",
        job_type="I2V",
        template=template,
        inputs={"6.text": "Ritter im Regen", "3.seed": 2**53 + 1},
        priority=7,
        retry_limit=0,
        timeout_seconds=1.5,
        file_path="jobs/finished/video/knight.webm",
        output_node="9",
        metadata={"creator": "cli"},
        batch_id="book",
        batch_index=0,
    )
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert (job.id, job.status, job.job_type, job.workflow_id) == (job_id, "pending", "I2V", "wf_realistic_portrait")
    assert (job.priority, job.retry_limit, job.timeout_seconds) == (7, 0, 1.5)
    assert (job.file_path, job.output_node) == ("jobs/finished/video/knight.webm", "9")
    assert (job.batch_id, job.batch_index, job.run_count, job.retries_attempted) == ("book", 0, 0, 0)
    assert job.created_at == database.clock.text()
    (row,) = database.by_hand("SELECT metadata, inputs, template_hash FROM jobs")
    assert json.loads(row["metadata"]) == {"creator": "cli"}
    assert json.loads(row["inputs"]) == {"6.text": "Ritter im Regen", "3.seed": 2**53 + 1}
    assert row["template_hash"] == template.hash


async def test_without_options_a_job_has_the_documented_defaults(store: Store) -> None:
    await submit_one(store)
    job = await store.run(ops.find_job, "knight.yaml")
    assert job is not None
    assert (job.priority, job.retry_limit, job.hold, job.strikes) == (50, None, None, 0)
    assert (job.start_time, job.end_time, job.worker_id, job.outputs) == (None, None, None, ())


async def test_many_jobs_are_accepted_at_once_and_in_order(store: Store, database: Database) -> None:
    before = database.commits(store)
    ids = await store.run(ops.submit_jobs, [wish(f"{number}.yaml") for number in range(1000)])
    assert database.commits(store) == before + 1
    assert ids == sorted(ids)
    assert (await store.run(ops.count_jobs)).pending == 1000


async def test_a_name_that_is_taken_gets_no_id_and_the_others_do(store: Store) -> None:
    await submit_one(store, "a.yaml", priority=1)
    taken, accepted = await store.run(ops.submit_jobs, [wish("a.yaml", priority=2), wish("b.yaml")])
    assert taken is None
    assert [(job.id, job.config_name, job.priority) for job in await store.run(ops.list_jobs)] == [
        (1, "a.yaml", 1),
        (accepted, "b.yaml", 50),
    ]


async def test_a_name_twice_in_one_submission_is_one_job(store: Store) -> None:
    first, second = await store.run(ops.submit_jobs, [wish("a.yaml"), wish("a.yaml")])
    assert (first is None, second) == (False, None)
    assert [event.name for event in await store.run(ops.events_after, 0)] == ["job.submitted"]


async def test_all_are_accepted_or_none(store: Store, database: Database) -> None:
    not_json = object()
    with pytest.raises(TypeError):
        await store.run(
            ops.submit_jobs, [wish("a.yaml", template=Template.of(GRAPH)), wish("b.yaml", metadata={"x": not_json})]
        )
    assert (await store.run(ops.count_jobs)).pending == 0
    assert await store.run(ops.events_after, 0) == []
    assert database.by_hand("SELECT * FROM templates") == []
    assert await store.run(ops.submit_jobs, [wish("a.yaml")]) != [None]


async def test_a_workflow_shared_by_many_jobs_is_stored_once(store: Store, database: Database) -> None:
    same = {"6": {"inputs": {"text": "Käse 🧀"}, "class_type": "CLIPTextEncode"}}
    await store.run(ops.submit_jobs, [wish(f"{number}.yaml", template=Template.of(GRAPH)) for number in range(3)])
    await submit_one(store, "later.yaml", template=Template.of(same))
    await submit_one(store, "other.yaml", template=Template.of({}))
    rows = database.by_hand("SELECT hash FROM templates")
    assert {row["hash"] for row in rows} == {Template.of(GRAPH).hash, Template.of({}).hash}
    found = await store.run(ops.find_template, Template.of(GRAPH).hash)
    assert found is not None
    assert found.graph() == GRAPH
    assert await store.run(ops.find_template, "unknown") is None


async def test_text_that_is_half_a_character_comes_back_as_it_was(store: Store, database: Database) -> None:
    half = json.loads('"\\ud83e"')
    await submit_one(store, template=Template.of({"6": {"inputs": {"text": half}}}), inputs={"6.text": half})
    (row,) = database.by_hand("SELECT inputs, template_hash FROM jobs")
    assert json.loads(row["inputs"]) == {"6.text": half}
    found = await store.run(ops.find_template, row["template_hash"])
    assert found is not None
    assert found.graph() == {"6": {"inputs": {"text": half}}}


async def test_a_job_is_found_by_its_name_first_and_by_its_id_else(store: Store) -> None:
    first = await submit_one(store, "a.yaml")
    second = await submit_one(store, str(first))
    assert second != first
    assert [job.id for name in ("a.yaml", str(first), str(second)) if (job := await store.run(ops.find_job, name))] == [
        first,
        second,
        second,
    ]
    for nobody in ("", "-1", "1.0", "٣", "9" * 30, "'; DROP TABLE jobs; --"):
        assert await store.run(ops.find_job, nobody) is None


async def test_jobs_of_a_batch_are_listed_by_their_index(store: Store) -> None:
    await store.run(
        ops.submit_jobs, [wish(f"{index}.yaml", batch_id="sweep", batch_index=index) for index in (2, 0, 1)]
    )
    await submit_one(store, "stranger.yaml")
    listed = await store.run(ops.list_jobs, batch_id="sweep")
    assert [job.config_name for job in listed] == ["0.yaml", "1.yaml", "2.yaml"]
    assert [job.batch_index for job in await store.run(ops.list_jobs, batch_id="sweep", status=JobStatus.DONE)] == []
    assert len(await store.run(ops.list_jobs, batch_id="sweep", limit=2)) == 2


async def test_a_key_of_the_caller_is_given_once_for_each_token(store: Store, database: Database) -> None:
    first, other, again, named = await store.run(
        ops.submit_jobs,
        [
            wish("a", external_id="order"),
            wish("b", external_id="order", created_by=7),
            wish("c", external_id="order"),
            wish("d", external_id="other"),
        ],
    )
    assert (again, await store.run(ops.find_job, "c")) == (None, None)
    for owner, job_id in ((None, first), (7, other)):
        holder = await store.run(ops.find_external_id, owner, "order")
        assert holder == Holder("job", str(job_id), "a" if owner is None else "b", None)
    assert await store.run(ops.find_external_id, 7, "other") is None
    assert named is not None
    await store.run(ops.create_batch, NewBatch("s", "s", BatchKind.SWEEP, external_id="sweep"), None)
    assert await store.run(ops.find_external_id, None, "sweep") is None
    with pytest.raises(BatchTaken):
        await store.run(ops.create_batch, NewBatch("t", "t", BatchKind.BOOK, external_id="sweep"), None)
    assert await store.run(ops.find_external_id, None, "sweep", with_filling=True) == Holder("batch", "s", "s", None)
    await store.run(ops.open_batch, "s")
    assert (await store.run(ops.find_external_id, None, "sweep")) is not None
    [listed] = await store.run(ops.newest_batches)
    assert listed.external_id == "sweep"
