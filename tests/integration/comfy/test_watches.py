"""A prompt is watched from its submission to its end, with its progress on the way."""

from __future__ import annotations

import asyncio

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import PromptRejected
from comfyui_agent.comfy.lookup import Ended, Running, Unknown, Waiting
from comfyui_agent.comfy.watch import Progress, Stage
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import PromptId, mint_prompt_id
from support.graphs import failing, fresh_prefix, node, picture, slow_graph, text_to_image
from support.promises import failed, succeeded
from support.wire import Wire


async def test_a_prompt_ends_with_its_files_and_its_own_times(comfy: ComfyClient) -> None:
    prefix = fresh_prefix()
    watch = await comfy.submit(picture(prefix, batch_size=2), mint_prompt_id())
    outcome = succeeded(await watch.outcome(timeout=20))
    assert [file.filename for file in outcome.results.kept] == [f"{prefix}_00001_.png", f"{prefix}_00002_.png"]
    assert outcome.seconds is not None
    assert outcome.seconds < 20
    assert watch.progress.stage is Stage.ENDED


async def test_progress_names_the_node_counts_the_steps_and_shows_a_preview(
    slow_comfy: ComfyClient, slow_wire: Wire
) -> None:
    graph = await text_to_image(slow_wire, steps=4)
    watch = await slow_comfy.submit(graph, mint_prompt_id(), extra_data={"preview_method": "latent2rgb"})
    seen = [progress async for progress in watch.changes()]
    sampled = [progress for progress in seen if progress.node_type == "KSampler" and progress.steps == 4]
    assert {progress.step for progress in sampled} >= {1, 2, 3}
    previews = [progress.preview for progress in seen if progress.preview is not None]
    assert previews[-1].mimetype == "image/jpeg"
    assert previews[-1].node_id == "5"
    assert previews[-1].image.startswith(b"\xff\xd8")
    assert seen[-1].stage is Stage.ENDED
    succeeded(await watch.outcome())


async def test_the_outcome_may_be_awaited_by_many_and_late(comfy: ComfyClient) -> None:
    watch = await comfy.submit(picture(), mint_prompt_id())
    first, second = await asyncio.gather(watch.outcome(timeout=20), watch.outcome(timeout=20))
    assert first is second
    assert await watch.outcome() is first


async def test_a_failing_node_is_named_with_its_traceback(comfy: ComfyClient) -> None:
    watch = await comfy.submit(failing(), mint_prompt_id())
    outcome = failed(await watch.outcome(timeout=20), FailureClass.EXECUTION)
    assert (outcome.failure.node_id, outcome.failure.node_type) == ("2", "SaveImage")
    assert outcome.failure.exception_type == "Exception"
    trace = outcome.failure.trace()
    assert "Traceback" in trace
    assert watch.prompt_id in trace
    assert str(comfy.address) in trace


async def test_a_text_is_a_result(comfy: ComfyClient) -> None:
    graph = {"1": node("PrimitiveString", value=fresh_prefix()), "2": node("PreviewAny", source=["1", 0])}
    watch = await comfy.submit(graph, mint_prompt_id())
    outcome = succeeded(await watch.outcome(timeout=20))
    assert list(outcome.results.texts) == [graph["1"]["inputs"]["value"]]


async def test_a_prompt_is_seen_waiting_running_ended_and_unknown(slow_comfy: ComfyClient, slow_wire: Wire) -> None:
    running = await slow_comfy.submit(await slow_graph(slow_wire), mint_prompt_id())
    await _reaches(running.changes(), Stage.RUNNING)
    waiting = await slow_comfy.submit(picture(), mint_prompt_id())
    assert await slow_comfy.look_up(running.prompt_id) == Running()
    assert await slow_comfy.look_up(waiting.prompt_id) == Waiting(ahead=1)
    assert await slow_comfy.look_up(mint_prompt_id()) == Unknown()
    await slow_comfy.cancel(running.prompt_id)
    await waiting.outcome(timeout=20)
    assert isinstance(await slow_comfy.look_up(waiting.prompt_id), Ended)


@pytest.mark.parametrize("stage", ["waiting", "running", "ended"])
async def test_a_prompt_that_another_sent_is_taken_over_by_its_id_alone(
    slow_comfy: ComfyClient, slow_wire: Wire, stage: str
) -> None:
    prompt_id = mint_prompt_id()
    graph = await text_to_image(slow_wire) if stage == "running" else picture()
    async with ComfyClient(slow_wire.url) as other:
        if stage == "waiting":
            blocking = mint_prompt_id()
            await other.submit(await text_to_image(slow_wire), blocking)
        watch = await other.submit(graph, prompt_id)
        if stage == "running":
            await _reaches(watch.changes(), Stage.RUNNING)
        if stage == "ended":
            await watch.outcome(timeout=20)
    watch = slow_comfy.take_over(prompt_id)
    if stage == "waiting":
        await slow_comfy.cancel(blocking)
    outcome = succeeded(await watch.outcome(timeout=30))
    assert len(outcome.results.files) == 1


async def test_taking_over_a_prompt_that_nobody_knows_ends_as_lost(comfy: ComfyClient) -> None:
    failed(await comfy.take_over(mint_prompt_id()).outcome(timeout=20), FailureClass.SERVER_LOST)


@pytest.mark.parametrize("prompt_id", ["", "1", "None", "6F9619FF-8B86-4011-B42D-00C04FC964FF"])
async def test_an_id_that_newer_servers_refuse_is_refused_here_already(comfy: ComfyClient, prompt_id: str) -> None:
    with pytest.raises(ValueError, match="uuid4"):
        await comfy.submit(picture(), PromptId(prompt_id))


async def test_a_workflow_as_the_editor_saves_it_is_refused_with_a_remedy(comfy: ComfyClient) -> None:
    with pytest.raises(PromptRejected, match="Export \\(API\\)"):
        await comfy.submit({"nodes": [], "links": []}, mint_prompt_id())


async def test_a_rejection_says_in_its_text_which_node_and_why(comfy: ComfyClient) -> None:
    graph = picture()
    graph["1"]["inputs"]["width"] = 0
    with pytest.raises(PromptRejected, match="node 1 \\(EmptyImage\\): Value 0 smaller than min"):
        await comfy.submit(graph, mint_prompt_id())


async def _reaches(changes: object, stage: Stage) -> None:
    async for progress in changes:  # type: ignore[attr-defined]
        assert isinstance(progress, Progress)
        if progress.stage is stage:
            return
    raise AssertionError(f"the prompt ended without being {stage}")
