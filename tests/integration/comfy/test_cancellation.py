"""A prompt is taken back, queued or running, and no other is touched."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.watch import Stage, Watch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.sim.process import ServerProcess
from support.graphs import node, picture, slow_graph
from support.promises import failed, succeeded
from support.wire import Wire


async def test_a_waiting_prompt_is_removed_and_a_running_one_interrupted(
    slow_comfy: ComfyClient, slow_wire: Wire
) -> None:
    running, waiting, last = await _three(slow_comfy, slow_wire)
    assert await slow_comfy.cancel(waiting.prompt_id) is Cancellation.REMOVED
    failed(await waiting.outcome(timeout=20), FailureClass.CANCELLED)
    assert running.progress.stage is Stage.RUNNING
    assert await slow_comfy.cancel(running.prompt_id) is Cancellation.INTERRUPTED
    failed(await running.outcome(timeout=20), FailureClass.CANCELLED)
    succeeded(await last.outcome(timeout=20))


async def test_without_an_interrupt_only_waiting_prompts_are_removed(slow_comfy: ComfyClient, slow_wire: Wire) -> None:
    running, waiting, last = await _three(slow_comfy, slow_wire)
    assert await slow_comfy.cancel(running.prompt_id, interrupt=False) is Cancellation.LEFT_RUNNING
    assert await slow_comfy.cancel(waiting.prompt_id, interrupt=False) is Cancellation.REMOVED
    failed(await waiting.outcome(timeout=20), FailureClass.CANCELLED)
    assert running.progress.stage is Stage.RUNNING
    await slow_wire.post("/interrupt", {})  # by someone else, so it is not cancelled
    outcome = failed(await running.outcome(timeout=20), FailureClass.INTERRUPTED)
    assert "someone else" in outcome.failure.message
    succeeded(await last.outcome(timeout=20))


async def test_a_prompt_that_has_ended_keeps_its_result(comfy: ComfyClient) -> None:
    watch = await comfy.submit(picture(), mint_prompt_id())
    succeeded(await watch.outcome(timeout=20))
    assert await comfy.cancel(watch.prompt_id) is Cancellation.ENDED_BEFORE


async def test_cancelling_what_nobody_knows_does_nothing(comfy: ComfyClient) -> None:
    assert await comfy.cancel(mint_prompt_id()) is Cancellation.REMOVED


async def test_an_old_server_is_left_to_finish_what_runs_with_one_warning(
    comfyui_simulator: Callable[..., ServerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    server = comfyui_simulator("--imitate", "0.3.50")
    graph = picture()
    graph["3"] = node("Sleep", value=["1", 0], seconds=0.7)
    graph["2"]["inputs"]["images"] = ["3", 0]
    async with ComfyClient(server.url) as comfy:
        running = await comfy.submit(graph, mint_prompt_id())
        await _runs(running)
        waiting = await comfy.submit(picture(), mint_prompt_id())
        assert await comfy.cancel(waiting.prompt_id) is Cancellation.REMOVED
        with caplog.at_level(logging.WARNING):
            assert await comfy.cancel(running.prompt_id) is Cancellation.LEFT_RUNNING
            assert await comfy.cancel(running.prompt_id) is Cancellation.LEFT_RUNNING
        succeeded(await running.outcome(timeout=20))
    warnings = [record for record in caplog.records if "0.3.57" in record.getMessage()]
    assert len(warnings) == 1


async def _three(comfy: ComfyClient, wire: Wire) -> tuple[Watch, Watch, Watch]:
    running = await comfy.submit(await slow_graph(wire), mint_prompt_id())
    await _runs(running)
    return running, await comfy.submit(picture(), mint_prompt_id()), await comfy.submit(picture(), mint_prompt_id())


async def _runs(watch: Watch) -> None:
    async for progress in watch.changes():
        if progress.stage is Stage.RUNNING:
            return
