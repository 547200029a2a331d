"""Servers from 0.3.57 on: what changed on the wire is handled, one test a difference."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.comfy.frames import Event
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.watch import Stage
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.sim.process import ServerProcess, simulator
from support.graphs import node, picture
from support.promises import failed, succeeded

LIMITS = Limits(poll_seconds=0.3, look_again_seconds=0.75)


@pytest.fixture(scope="module", params=["0.3.57", "0.3.68", "0.6", "0.7", "0.12", "0.20", "0.26", "0.33"])
def aged_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = simulator(tmp_path_factory.mktemp("aged"), "--imitate", request.param)
    yield server.start()
    server.kill()


@pytest.fixture(scope="module")
def newest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = simulator(tmp_path_factory.mktemp("newest"))
    yield server.start()
    server.kill()


@pytest.fixture
async def newest(newest_server: ServerProcess) -> AsyncIterator[ComfyClient]:
    async with ComfyClient(newest_server.url, limits=LIMITS) as client:
        yield client


async def test_every_version_renders_cancels_and_is_taken_over_from(aged_server: ServerProcess) -> None:
    sleeping = picture()
    sleeping["3"] = node("Sleep", value=["1", 0], seconds=30.0)
    sleeping["2"]["inputs"]["images"] = ["3", 0]
    async with ComfyClient(aged_server.url, limits=LIMITS) as comfy:
        watch = await comfy.submit(picture(), mint_prompt_id())
        succeeded(await watch.outcome(timeout=20))
        running = await comfy.submit(sleeping, mint_prompt_id())
        async for progress in running.changes():
            if progress.stage is Stage.RUNNING:
                break
        await comfy.cancel(running.prompt_id)
        failed(await running.outcome(timeout=20), FailureClass.CANCELLED)
        async with ComfyClient(aged_server.url, limits=LIMITS) as other:
            succeeded(await other.take_over(watch.prompt_id).outcome(timeout=20))


async def test_a_missing_node_reported_in_the_new_way_is_missing_and_named(newest: ComfyClient) -> None:
    graph = {"7": {**node("FancyUpscaler"), "_meta": {"title": "My upscaler"}}}
    with pytest.raises(PromptRejected) as raised:
        await newest.submit(graph, mint_prompt_id())
    failure = raised.value.failure()
    assert (failure.kind, failure.node_id, failure.node_type) == (FailureClass.MISSING, "7", "FancyUpscaler")
    assert "My upscaler" in failure.message


async def test_a_cycle_reported_in_the_new_way_is_invalid_and_named(newest: ComfyClient) -> None:
    graph = {
        "1": node("ImageInvert", image=["2", 0]),
        "2": node("ImageInvert", image=["1", 0]),
        "3": node("SaveImage", images=["1", 0], filename_prefix="x"),
    }
    with pytest.raises(PromptRejected) as raised:
        await newest.submit(graph, mint_prompt_id())
    assert raised.value.kind is FailureClass.INVALID
    assert any("cycle" in line.lower() for line in raised.value.details)


async def test_definitions_with_more_keys_are_read_all_the_same(newest: ComfyClient) -> None:
    definition = await newest.definitions.of("SaveImage")
    assert definition is not None
    assert definition["has_intermediate_output"] is False
    assert await newest.definitions.output_nodes(picture()) == {"2"}


async def test_a_cached_answer_lists_its_files_with_and_without_a_client_id_of_ours(newest: ComfyClient) -> None:
    graph = picture()
    first = succeeded(await (await newest.submit(graph, mint_prompt_id())).outcome(timeout=20))
    second = succeeded(await (await newest.submit(graph, mint_prompt_id())).outcome(timeout=20))
    assert second.results == first.results


async def test_executed_frames_of_nodes_in_the_middle_change_no_outcome(newest: ComfyClient) -> None:
    """Newer servers tell the intermediate outputs of some nodes, cached ones too."""
    watch = await newest.submit(picture(), mint_prompt_id())
    watch.hear(Event("executed", watch.prompt_id, {"node": "1", "output": {"images": [{"filename": "half.png"}]}}))
    outcome = succeeded(await watch.outcome(timeout=20))
    assert [file.node_id for file in outcome.results.files] == ["2"]
