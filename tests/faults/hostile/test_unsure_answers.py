"""A no that is not sure is not a no: blips, busy servers and late arrivals do not become verdicts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ClientClosed, PromptRejected, ServerLost, UploadRefused
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.comfy.watch import Stage
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from support.graphs import node, picture
from support.hostile import HostileServer, Question, Writer, answer, in_turn, never, reset, says
from support.wire import Graph

SOON = 5.0
FILE = {"filename": "a.png", "subfolder": "", "type": "output"}
RESULT = ResultFile("2", "a.png", "", "output")


def cached_entry(prompt_id: str, graph: Graph) -> dict[str, Any]:
    messages = [["execution_cached", {"nodes": ["1", "2"]}], ["execution_success", {}]]
    entry = {
        "prompt": [0, prompt_id, graph, {}, ["2"]],
        "outputs": {"2": {"images": [FILE]}},
        "status": {"status_str": "success", "completed": True, "messages": messages},
    }
    return {prompt_id: entry}


@pytest.mark.parametrize("blip", [reset, answer("busy", status=503), never], ids=["reset", "busy", "silent"])
async def test_a_blip_while_a_cached_file_is_looked_for_does_not_make_it_gone(
    server: HostileServer, comfy: ComfyClient, blip: Any
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["GET /history"] = says(cached_entry(prompt_id, graph))
    server.replies["HEAD /view"] = in_turn(blip, answer())
    assert isinstance(await comfy.take_over(prompt_id, graph).outcome(SOON), Succeeded)


async def test_a_cached_file_that_is_clearly_gone_is_gone(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["GET /history"] = says(cached_entry(prompt_id, graph))
    server.replies["HEAD /view"] = answer(status=404)
    outcome = await comfy.take_over(prompt_id, graph).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.OUTPUT


async def test_a_gateway_that_is_not_up_is_not_a_missing_result(
    server: HostileServer, comfy: ComfyClient, folder: Path
) -> None:
    server.replies["GET /view"] = answer("bad gateway", status=502)
    with pytest.raises(ServerLost):
        await comfy.download(RESULT, folder)
    assert server.asked("GET /view") == 2


async def test_slow_downloads_do_not_keep_questions_from_being_asked(server: HostileServer, folder: Path) -> None:
    limits = Limits(answer_seconds=0.5, downloads_at_once=2, connections=4, poll_seconds=0.05, lost_after_seconds=0.2)
    prompt_id = mint_prompt_id()
    server.replies["GET /view"] = never
    server.replies["GET /queue"] = says({"queue_running": [[0, prompt_id, {}, {}, []]], "queue_pending": []})
    async with ComfyClient(server.url, limits=limits, listen=False) as comfy:
        downloads = [asyncio.create_task(comfy.download(RESULT, folder)) for _ in range(12)]
        watch = comfy.take_over(prompt_id)
        await server.until_asked("GET /queue", times=8)
        assert watch.progress.stage is Stage.RUNNING
        for download in downloads:
            download.cancel()
        await asyncio.gather(*downloads, return_exceptions=True)


async def test_a_prompt_over_which_the_server_breaks_is_invalid(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["POST /prompt"] = answer("500 Internal Server Error", status=500)
    with pytest.raises(PromptRejected) as raised:
        await comfy.submit({"1": 5}, mint_prompt_id())
    assert raised.value.kind is FailureClass.INVALID


async def test_a_history_that_cannot_be_written_as_json_is_a_bad_output(
    server: HostileServer, comfy: ComfyClient
) -> None:
    server.replies["GET /history"] = answer("500 Internal Server Error", status=500)
    outcome = await comfy.take_over(mint_prompt_id()).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.OUTPUT


async def test_with_a_queue_too_long_to_be_read_each_prompt_is_asked_for(
    server: HostileServer, comfy: ComfyClient
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["GET /queue"] = answer(json.dumps({"queue_running": ["x" * 500_000], "queue_pending": []}))
    server.replies["GET /api"] = says({"id": prompt_id, "status": "in_progress"})
    watch = comfy.take_over(prompt_id, graph)
    await server.until_asked("GET /api", times=10)
    assert watch.progress.stage is Stage.RUNNING
    server.replies["GET /api"] = says({"id": prompt_id, "status": "completed"})
    server.replies["GET /history"] = says(cached_entry(prompt_id, graph))
    server.replies["HEAD /view"] = answer()
    assert isinstance(await watch.outcome(SOON), Succeeded)


async def test_a_refused_upload_is_not_a_lost_server(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["POST /upload"] = answer("too large", status=413)
    with pytest.raises(UploadRefused) as raised:
        await comfy.upload(b"x", "a.png")
    assert raised.value.kind is FailureClass.INVALID


async def test_cancelling_waits_for_a_post_that_may_be_under_way(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id = mint_prompt_id()
    empty, waiting = (
        server.replies["GET /queue"],
        says({"queue_running": [], "queue_pending": [[0, prompt_id, {}, {}, []]]}),
    )
    server.replies["GET /queue"] = in_turn(empty, waiting, empty)
    assert await comfy.cancel(prompt_id) is Cancellation.REMOVED
    assert server.asked("POST /queue") == 1


async def test_one_answer_that_hangs_does_not_hold_up_the_others(server: HostileServer, comfy: ComfyClient) -> None:
    stuck, other, graph = mint_prompt_id(), mint_prompt_id(), picture()

    async def history(question: Question, writer: Writer) -> None:
        await (never if stuck in question.path else says(cached_entry(other, graph)))(question, writer)

    server.replies["GET /history"] = history
    server.replies["HEAD /view"] = answer()
    comfy.take_over(stuck, graph)
    await server.until_asked("GET /history")
    assert isinstance(await comfy.take_over(other, graph).outcome(SOON), Succeeded)


async def test_a_closed_client_does_nothing_more(server: HostileServer, small_client: Any, folder: Path) -> None:
    async with small_client() as comfy:
        await comfy.queue()
    asked = len(server.questions)
    for call in (
        comfy.queue,
        lambda: comfy.submit(picture(), mint_prompt_id()),
        lambda: comfy.download(RESULT, folder),
    ):
        with pytest.raises(ClientClosed):
            await call()
    with pytest.raises(ClientClosed):
        comfy.take_over(mint_prompt_id())
    assert len(server.questions) == asked


async def test_what_is_under_way_when_the_client_is_closed_ends_at_once(server: HostileServer, folder: Path) -> None:
    server.replies["GET /view"] = never
    server.replies["GET /object_info"] = never
    client = ComfyClient(server.url, limits=Limits(), listen=False)
    async with client as comfy:
        calls = [asyncio.create_task(comfy.download(RESULT, folder)), asyncio.create_task(_ask(comfy))]
        await server.until_asked("GET /view")
    done = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), SOON)
    assert [type(error) for error in done] == [ClientClosed, ClientClosed]


async def test_saving_without_listing_is_no_failure(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id = mint_prompt_id()
    graph = {**picture(), "9": node("CheckpointSave", filename_prefix="merged")}
    entry = cached_entry(prompt_id, graph)
    entry[prompt_id]["prompt"][4] = ["2", "9"]
    server.replies["GET /history"] = says(entry)
    server.replies["HEAD /view"] = answer()
    server.replies["GET /object_info"] = says(
        {"SaveImage": {"output_node": True}, "CheckpointSave": {"output_node": True}}
    )
    assert isinstance(await comfy.take_over(prompt_id, graph).outcome(SOON), Succeeded)


async def _ask(comfy: ComfyClient) -> Any:
    return await comfy.definitions.all()
