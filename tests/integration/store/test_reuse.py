"""Recorded results: which waiting job may have one, which result it is, and what is recorded of it."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.domain.jobs import SAME, Job, JobId, Template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Digest, Leased
from comfyui_agent.store.store import Store
from support.stores import LEASE_SECONDS, Database, lease_one, wish

GRAPH = Template.of({"1": {"class_type": "SaveImage", "inputs": {}}})
SERVER = "http://first:8188"


async def submit(store: Store, name: str, **facts: Any) -> JobId:
    [job_id] = await store.run(ops.submit_jobs, [wish(name, **{"template": GRAPH, "reuse": SAME, **facts})])
    assert job_id is not None
    return job_id


async def render(store: Store, name: str = "fox", digest: str | None = "d") -> JobId:
    job_id = await submit(store, name)
    leased, path = await lease_one(store), f"{name}.png"
    await store.run(ops.note_fingerprint, leased.lease, "print")
    facts = {"digests": {path: Digest(digest, 3)}} if digest else {}
    await store.run(ops.claim_files, leased.lease, [path], LEASE_SECONDS, **facts)
    await store.run(ops.complete_job, leased.lease, [path], 1.0)
    return job_id


async def lease(store: Store) -> Leased | None:
    return await store.run(ops.lease_reusable, "worker", SERVER, mint_prompt_id(), LEASE_SECONDS)


async def job_of(store: Store, job_id: JobId) -> Job:
    job = await store.run(ops.find_job_by_id, job_id)
    assert job is not None
    return job


async def test_a_result_that_was_taken_over_is_no_run_and_names_who_rendered_it(store: Store) -> None:
    made, again = await render(store), await submit(store, "again")
    assert await store.run(ops.is_reusable_waiting)
    leased = await lease(store)
    assert leased is not None
    assert (leased.lease.job_id, leased.is_ahead) == (again, True)
    found = await store.run(ops.find_same_result, "print", again)
    assert found is not None
    assert (found.origin, found.files) == (made, (("fox.png", "d"),))
    await store.run(ops.claim_files, leased.lease, ["again.png"], LEASE_SECONDS)
    await store.run(ops.complete_reused, leased.lease, ["again.png"], made)
    job = await job_of(store, again)
    assert (job.status, job.outputs, job.reused_from, job.run_count) == ("done", ("again.png",), made, 0)
    assert await store.run(ops.list_attempts, again) == []
    assert await lease(store) is None
    assert not await store.run(ops.is_reusable_waiting)


@pytest.mark.parametrize(
    "facts",
    [
        {"inputs": {"1.width": 1}},
        {"pictures": {"1.image": "x.png"}},
        {"template": Template.of({"2": {"class_type": "SaveImage", "inputs": {}}})},
        {"reuse": None},
        {"reserved": True},
    ],
)
async def test_what_was_never_made_so_waits_for_its_turn(store: Store, facts: dict[str, Any]) -> None:
    await render(store)
    await submit(store, "again", **facts)
    assert await lease(store) is None


async def test_a_job_that_was_looked_at_in_vain_is_not_looked_at_again(store: Store) -> None:
    await render(store)
    again = await submit(store, "again")
    leased = await lease(store)
    assert leased is not None
    await store.run(ops.note_fingerprint, leased.lease, "another")
    await store.run(ops.return_unsent, leased.lease)
    assert await lease(store) is None
    assert (await job_of(store, again)).status == "pending"


async def test_a_result_without_digests_is_never_taken_over(store: Store) -> None:
    await render(store, digest=None)
    assert await store.run(ops.find_same_result, "print", await submit(store, "again")) is None


async def test_a_result_that_is_made_anew_counts_no_more(store: Store, database: Database) -> None:
    made = await render(store)
    database.by_hand(f"UPDATE jobs SET status = 'pending' WHERE id = {made}")
    again = await submit(store, "again")
    assert await store.run(ops.find_same_result, "print", again) is None
