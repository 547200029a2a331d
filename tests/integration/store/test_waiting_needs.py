"""What waits, by its needs, and how much of it comes before a job."""

from __future__ import annotations

import pytest

from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.needs import Ahead
from comfyui_agent.store.store import Store
from support.stores import Database, submit_one


async def submit(store: Store, name: str, model: str, priority: int = 50) -> JobId:
    graph = {"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": model}}}
    return await submit_one(store, name, template=Template.of(graph), priority=priority)


async def found(store: Store, job_id: JobId) -> Job:
    job = await store.run(ops.find_job_by_id, job_id)
    assert job is not None
    return job


async def test_the_needs_of_what_may_run_are_found_once_each(store: Store, database: Database) -> None:
    assert await store.run(ops.waiting_needs) == []
    for number, (model, priority) in enumerate([("a", 50), ("b", 10), ("a", 50), ("a", 10), ("c", 70), ("d", 50)]):
        await submit(store, f"{number}.yaml", f"{model}.safetensors", priority)
    database.by_hand("UPDATE jobs SET hold = 'paused' WHERE config_name = '5.yaml'")
    database.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('x', 'T2I', 'w', 'pending') "
    )
    waiting = await store.run(ops.waiting_needs)
    models = sorted(each.models[0].value if each else "" for each in waiting)
    assert models == ["", "a.safetensors", "b.safetensors", "c.safetensors"]


@pytest.mark.parametrize(("index", "ahead"), [(0, Ahead()), (2, Ahead(1, 10, 10, 1)), (3, Ahead(3, 10, 50, 0))])
async def test_what_comes_before_a_job_is_counted(store: Store, index: int, ahead: Ahead) -> None:
    ids = [
        await submit(store, f"{number}.yaml", "a.safetensors", priority)
        for number, priority in enumerate([10, 50, 50, 70])
    ]
    assert await store.run(ops.jobs_ahead, await found(store, ids[index])) == ahead
