"""From a result onwards over the API: again, varied, in another workflow, and takes to choose from."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.store import operations as ops
from support.pictures import png
from support.web import Served, check_problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORTRAIT = {"prompt": "a fox", "seed": 7, "steps": 4}


async def portrait(house: Served, name: str, **inputs: Any) -> dict[str, Any]:
    """A job of a workflow with a seed."""
    said = {"job_type": "T2I", "workflow_id": "wf_realistic_portrait", "inputs": {**PORTRAIT, **inputs}}
    answer = await house.post("/api/v1/jobs", {**said, "name": name, "priority": 1, "metadata": {"creator": "ann"}})
    assert answer.status == 201, answer.text
    made: dict[str, Any] = answer.value
    return made


async def finish_next(house: Served, picture: bytes | None = None) -> None:
    [leased] = await house.lease()
    await house.finish(leased, *([picture] if picture else []))


async def test_again_is_the_same_job_with_a_new_seed_and_what_else_is_said(house: Served) -> None:
    first = await portrait(house, "fox.yaml", prompt="a fox with $${braces}")
    assert first["inputs"]["2.text"] == "a fox with ${braces}"
    answer = await house.post("/api/v1/jobs/fox.yaml/again", {"new_seed": True, "inputs": {"steps": 9}})
    assert answer.status == 201, answer.text
    new = answer.value
    assert new["config_name"].startswith("fox_")
    assert new["inputs"] == first["inputs"] | {"5.steps": 9, "5.seed": new["inputs"]["5.seed"]}
    assert new["inputs"]["5.seed"] != 7
    assert new["template_hash"] == first["template_hash"]
    assert new["metadata"] == {"creator": "ann", "from": "fox.yaml"}
    [told] = [
        event for event in await house.store.run(ops.events_after, 0) if event.job_id == new["id"] and event.is_audit
    ]
    assert told.name == "audit.job.submit"
    third = (await house.post(f"/api/v1/jobs/{new['id']}/again", {"inputs": {"5.seed": 8}})).value
    assert third["inputs"] == new["inputs"] | {"5.seed": 8}


async def test_what_has_no_place_or_no_seed_is_refused_by_name(house: Served) -> None:
    await portrait(house, "owl")
    said = check_problem(await house.post("/api/v1/jobs/owl/again", {"inputs": {"stps": 9}}), 409)
    assert "inputs.stps" in said["detail"]
    await house.job("seedless")
    said = check_problem(await house.post("/api/v1/jobs/seedless/again", {"new_seed": True}), 409)
    assert "has no seed" in said["detail"]
    check_problem(await house.post("/api/v1/jobs/seedless/vary", {}), 422)
    said = check_problem(await house.post("/api/v1/jobs/seedless/vary", {"seeds": 3}), 409)
    assert "has no seed" in said["detail"]


async def test_the_same_request_under_one_key_is_one_job(house: Served) -> None:
    await portrait(house, "elk")
    key = {"Idempotency-Key": "again-elk"}
    names = [
        (await house.post("/api/v1/jobs/elk/again", {"new_seed": True}, headers=key)).value["config_name"]
        for _ in range(2)
    ]
    assert names[0] == names[1]
    check_problem(await house.post("/api/v1/jobs/elk/again", {"inputs": {"steps": 5}}, headers=key), 409)


async def test_more_like_this_is_a_sweep_of_seeds_around_the_job(house: Served) -> None:
    first = await portrait(house, "hen")
    answer = await house.post("/api/v1/jobs/hen/vary", {"seeds": 3, "set": {"steps": [4, 8]}})
    assert answer.status == 201, answer.text
    batch = answer.value
    assert (batch["total"], batch["name"]) == (6, "hen")
    members = [member async for member in ops.batch_members(house.store, batch["id"])]
    seeds = {member.batch_index: member.inputs or "" for member in members}
    assert len(seeds) == 6
    shown = (await house.get(f"/api/v1/jobs/{members[0].id}")).value["given"]
    values = {each["place"]: each["value"] for each in shown}
    assert values["2.text"] == first["inputs"]["2.text"] == "a fox"
    assert values["5.seed"] != 7


async def test_a_result_is_the_picture_of_another_workflow(house: Served) -> None:
    await portrait(house, "cat", seed=12)
    for leased in await house.lease(64):
        await house.finish(leased, png())
    said = {"workflow_id": "wf_image_to_image", "inputs": {"prompt": "in oil", "seed": 3}}
    answer = await house.post("/api/v1/jobs/cat/use", said)
    assert answer.status == 201, answer.text
    assert list(answer.value["pictures"]) == ["4.image"]
    assert answer.value["metadata"] == {"from": "cat"}
    said["inputs"] = {"prompt": "in oil"}
    drawn = (await house.post("/api/v1/jobs/cat/use", said)).value
    assert drawn["metadata"]["drawn"]["written"] == {"seed": "random"}, "a seed that it needs is drawn"
    said = check_problem(await house.post("/api/v1/jobs/cat/use", {"workflow_id": "picture"}), 409)
    assert "takes no picture" in said["detail"]
    check_problem(await house.post("/api/v1/jobs/cat/use", {"workflow_id": "wf_image_to_image", "result": 2}), 409)


async def test_takes_are_listed_served_and_chosen(house: Served) -> None:
    for leased in await house.lease(64):
        await house.finish(leased)
    job = await portrait(house, "bee")
    path = f"/api/v1/jobs/{job['id']}"
    assert (await house.get(f"{path}/takes")).value == {"takes": []}
    pictures = [png((0, 0, blue)) for blue in (1, 2)]
    await finish_next(house, pictures[0])
    await house.store.run(ops.resubmit_jobs, [(job["id"], None)])
    [leased] = await house.lease()
    folder = house.workspace.root / "jobs" / "finished" / "image"
    (folder / "bee_2.png").write_bytes(pictures[1])
    await house.store.run(ops.complete_job, leased.lease, ["jobs/finished/image/bee_2.png"], 1.0)
    takes = (await house.get(f"{path}/takes")).value["takes"]
    assert [(take["number"], take["counts"]) for take in takes] == [(1, False), (2, True)]
    for take, picture in zip(takes, pictures, strict=True):
        [result] = take["results"]
        assert (await house.get(result["url"])).body == picture
        assert (await house.get(result["thumbnail"])).status == 200
    assert (await house.get(f"{path}/results/1")).body == pictures[1]
    chosen = await house.put(f"{path}/take", {"number": 1})
    assert (chosen.status, chosen.value["take"]) == (200, 1)
    assert (await house.get(f"{path}/results/1")).body == pictures[0]
    assert (await house.get(f"{path}/results/1?take=2")).body == pictures[1]
    trail = [event.name for event in await house.store.run(ops.events_after, 0) if event.job_id == job["id"]]
    assert trail.count("audit.job.take") == 1
    check_problem(await house.put(f"{path}/take", {"number": 3}), 404)
    check_problem(await house.get(f"{path}/results/1?take=3"), 404)
