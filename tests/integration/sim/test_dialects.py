"""--imitate: each difference between versions, seen from outside."""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.graphs import node, picture, slow_graph
from support.wire import Graph, Wire

from .conftest import Shared, connected

OLD, USUAL, NEWEST = "0.3.50", "0.7.0", "newest"
CIRCLE: Graph = {
    "1": node("ImageInvert", image=["2", 0]),
    "2": node("ImageInvert", image=["1", 0]),
    "3": node("SaveImage", images=["2", 0], filename_prefix="x"),
}


@pytest.fixture(params=[OLD, USUAL, NEWEST])
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def wire(shared: Shared, version: str) -> AsyncIterator[Wire]:
    async with connected(shared.get("--imitate", version)) as ready:
        yield ready
        await ready.leave()


@pytest.fixture
async def slow(shared: Shared, version: str) -> AsyncIterator[Wire]:
    """A server on which a render is longer than the test."""
    async with connected(shared.get("--imitate", version, "--render-seconds", "60")) as ready:
        yield ready
        await ready.leave()


def history_error(entry: dict[str, Any]) -> str:
    event: str = entry["status"]["messages"][-1][0]
    return event


async def test_the_version_is_shown(wire: Wire, version: str) -> None:
    shown = (await wire.get("/system_stats")).body["system"]["comfyui_version"]
    assert shown == {NEWEST: "0.38.0"}.get(version, version)


async def test_an_interrupt_with_an_id_spares_other_prompts_since_0_3_57(slow: Wire, version: str) -> None:
    prompt_id = await slow.submit(await slow_graph(slow))
    await slow.running(prompt_id)
    await slow.interrupt(str(uuid.uuid4()))
    if version == OLD:
        assert history_error(await slow.finished(prompt_id)) == "execution_interrupted"
    else:
        await slow.running(prompt_id)
        await slow.interrupt(prompt_id)
        assert history_error(await slow.finished(prompt_id)) == "execution_interrupted"


async def test_the_creation_time_is_noted_since_0_3_69(wire: Wire, version: str) -> None:
    entry = await wire.run(picture())
    assert ("create_time" in entry["prompt"][3]) is (version != OLD)


async def test_jobs_are_listed_since_0_6(wire: Wire, version: str) -> None:
    await wire.run(picture())
    answer = await wire.get("/api/jobs")
    assert answer.status == (404 if version == OLD else 200)


async def test_an_interrupted_job_is_cancelled_since_0_8(slow: Wire, version: str) -> None:
    if version == OLD:
        assert (await slow.get("/api/jobs?status=cancelled")).status == 404
        return
    prompt_id = await slow.submit(await slow_graph(slow))
    await slow.running(prompt_id)
    await slow.interrupt(prompt_id)
    await slow.finished(prompt_id)
    job = (await slow.get(f"/api/jobs/{prompt_id}")).body
    assert job["status"] == ("cancelled" if version == NEWEST else "failed")
    assert (await slow.get("/api/jobs?status=cancelled")).status == (200 if version == NEWEST else 400)


async def test_an_unknown_node_is_a_missing_node_type_since_0_12(wire: Wire, version: str) -> None:
    graph = {"7": {**node("NoSuchNode"), "_meta": {"title": "My node"}}}
    error = (await wire.offer(graph)).body["error"]
    if version == NEWEST:
        assert error["type"] == "missing_node_type"
        assert error["extra_info"] == {"node_id": "7", "class_type": "NoSuchNode", "node_title": "My node"}
    else:
        assert (error["type"], error["details"]) == ("invalid_prompt", "Node ID '#7'")


async def test_a_circle_is_named_since_0_19(wire: Wire, version: str) -> None:
    answer = await wire.offer(copy.deepcopy(CIRCLE))
    assert answer.status == 400
    kinds = [error["type"] for found in answer.body["node_errors"].values() for error in found["errors"]]
    assert kinds == (["dependency_cycle"] if version == NEWEST else [])


async def test_requests_from_other_sites_are_refused_since_0_19(wire: Wire, version: str) -> None:
    answer = await wire.get("/queue", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == (403 if version == NEWEST else 200)
    assert (await wire.get("/queue", headers={"Sec-Fetch-Site": "same-origin"})).status == 200


async def test_the_cache_outlives_other_prompts_since_0_25(wire: Wire, version: str) -> None:
    first = picture()
    for graph in (first, picture()):
        await wire.run(graph)
    cached = (await wire.run(first))["status"]["messages"][1][1]["nodes"]
    assert sorted(cached) == (["1", "2"] if version == NEWEST else [])


@pytest.mark.parametrize(
    "given", ["mine", "C20EF73A-9758-4E56-B4E1-A7DB7E181399", "4da6f01771a74b70b025b550b1bc41f0", 5, ""]
)
async def test_a_prompt_id_must_be_a_canonical_uuid_since_0_28(wire: Wire, version: str, given: Any) -> None:
    answer = await wire.offer(picture(), prompt_id=given)
    if version == NEWEST:
        assert (answer.status, answer.body["error"]["type"]) == (400, "invalid_prompt_id")
    else:
        assert (answer.status, answer.body["prompt_id"]) == (200, str(given))


async def test_a_canonical_uuid_is_kept_and_null_becomes_one_since_0_28(wire: Wire, version: str) -> None:
    own = str(uuid.uuid4())
    assert await wire.submit(picture(), prompt_id=own) == own
    minted = await wire.submit(picture(), prompt_id=None)
    assert minted == (str(uuid.UUID(minted)) if version == NEWEST else "None")


async def test_jobs_can_be_cancelled_since_0_28(slow: Wire, version: str) -> None:
    running, waiting, other = [await slow.submit(await slow_graph(slow)) for _ in range(3)]
    await slow.running(running)
    answer = await slow.post(f"/api/jobs/{waiting}/cancel")
    if version != NEWEST:
        assert answer.status == 405
        return
    assert answer.body == {"cancelled": True}
    assert (await slow.post(f"/api/jobs/{waiting}/cancel")).body == {"cancelled": False}
    assert (await slow.post("/api/jobs/cancel", {"job_ids": [running, other]})).body == {"cancelled": True}
    assert history_error(await slow.finished(running)) == "execution_interrupted"
    await slow.idle()


async def test_cached_outputs_are_kept_without_a_client_since_0_30(wire: Wire, version: str) -> None:
    graph = picture()
    await wire.run(graph)
    repeated = await wire.run(graph, client_id=None)
    assert list(repeated["outputs"]) == (["2"] if version == NEWEST else [])


async def test_listed_files_have_ids_since_0_38(wire: Wire, version: str) -> None:
    (listed,) = (await wire.run(picture()))["outputs"]["2"]["images"]
    assert ("id" in listed) is (version == NEWEST)
