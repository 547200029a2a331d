"""Row 14: the history is evicted or cleared while a prompt is waited for. Outputs are looked for; it never hangs."""

from __future__ import annotations

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.lab.fault_proxy import Delay, FaultProxy
from support.graphs import picture, slow_graph
from support.promises import failed, succeeded
from support.wire import Wire


async def test_a_result_heard_on_the_websocket_outlives_the_history(
    comfy: ComfyClient, proxy: FaultProxy, wire: Wire
) -> None:
    prompt_id = mint_prompt_id()
    proxy.inject(Delay(0.5), on="GET /history", times=1)
    watch = await comfy.submit(picture(), prompt_id)
    await wire.finished(prompt_id)
    await wire.post("/history", {"clear": True})
    outcome = succeeded(await watch.outcome(timeout=20))
    assert len(outcome.results.files) == 1


async def test_files_under_the_prompts_own_prefix_are_found_without_history_and_websocket(
    deaf_comfy: ComfyClient, wire: Wire
) -> None:
    prompt_id = mint_prompt_id()
    watch = await deaf_comfy.submit(picture(f"e3/{prompt_id}"), prompt_id)
    await _run_and_forget(wire, prompt_id)
    outcome = succeeded(await watch.outcome(timeout=20))
    assert outcome.evidence == "files"
    assert [(file.subfolder, file.filename) for file in outcome.results.files] == [("e3", f"{prompt_id}_00001_.png")]


async def test_a_prompt_that_cannot_be_traced_is_lost_and_says_so(deaf_comfy: ComfyClient, wire: Wire) -> None:
    prompt_id = mint_prompt_id()
    watch = await deaf_comfy.submit(picture(), prompt_id)
    await _run_and_forget(wire, prompt_id)
    outcome = failed(await watch.outcome(timeout=20), FailureClass.SERVER_LOST)
    assert "no longer knows" in outcome.failure.message


async def test_several_pictures_are_not_guessed_from_the_first_file(deaf_comfy: ComfyClient, wire: Wire) -> None:
    prompt_id = mint_prompt_id()
    watch = await deaf_comfy.submit(picture(f"e3/{prompt_id}", batch_size=3), prompt_id)
    await _run_and_forget(wire, prompt_id)
    failed(await watch.outcome(timeout=20), FailureClass.SERVER_LOST)


async def test_a_prompt_that_someone_deletes_from_the_queue_is_lost(slow_comfy: ComfyClient, slow_wire: Wire) -> None:
    blocking = await slow_comfy.submit(await slow_graph(slow_wire), mint_prompt_id())
    behind = await slow_comfy.submit(picture(), mint_prompt_id())
    await slow_wire.post("/queue", {"delete": [behind.prompt_id]})
    await slow_comfy.cancel(blocking.prompt_id)
    failed(await blocking.outcome(timeout=20), FailureClass.CANCELLED)
    failed(await behind.outcome(timeout=20), FailureClass.SERVER_LOST)


async def _run_and_forget(wire: Wire, prompt_id: str) -> None:
    await wire.finished(prompt_id)
    await wire.post("/history", {"delete": [prompt_id]})
