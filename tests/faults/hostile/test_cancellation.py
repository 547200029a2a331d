"""Taking something back never reaches further than what is ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comfyui_agent.comfy.cancellation import Cancellation
from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ClientClosed, ComfyError
from comfyui_agent.domain.prompts import mint_prompt_id
from support.graphs import picture
from support.hostile import TOKEN, HostileServer, answer, in_turn, says


def queue_of(*, running: list[list[Any]], pending: list[list[Any]]) -> dict[str, Any]:
    return {"queue_running": running, "queue_pending": pending}


def bodies(server: HostileServer, route: str) -> list[Any]:
    return [json.loads(question.body) for question in server.questions if question.route == route]


async def test_a_running_prompt_is_interrupted_by_its_id_and_never_globally(
    server: HostileServer, comfy: ComfyClient
) -> None:
    prompt_id = mint_prompt_id()
    server.replies["GET /queue"] = in_turn(
        says(queue_of(running=[[0, prompt_id, {}, {}, []]], pending=[])), server.replies["GET /queue"]
    )
    assert await comfy.cancel(prompt_id) is Cancellation.REMOVED
    assert bodies(server, "POST /interrupt") == [{"prompt_id": prompt_id}]
    assert all(body == {"delete": [prompt_id]} for body in bodies(server, "POST /queue"))


async def test_a_waiting_prompt_is_deleted_without_any_interrupt_and_without_knowing_the_version(
    server: HostileServer, comfy: ComfyClient
) -> None:
    server.replies["GET /system_stats"] = answer("broken", status=500)
    prompt_id = mint_prompt_id()
    assert await comfy.cancel(prompt_id) is Cancellation.REMOVED
    assert bodies(server, "POST /interrupt") == []


@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "a-strangers"])
async def test_a_prompt_that_runs_under_another_id_is_deleted_only_if_it_is_ours(
    server: HostileServer, comfy: ComfyClient, is_ours: bool
) -> None:
    other = mint_prompt_id()
    owner = comfy.client_id if is_ours else "someone else"
    server.replies["POST /prompt"] = says({"prompt_id": other, "number": 0, "node_errors": {}})
    server.replies["GET /queue"] = says(queue_of(running=[], pending=[[0, other, {}, {"client_id": owner}, []]]))
    with pytest.raises(ComfyError):
        await comfy.submit(picture(), mint_prompt_id())
    assert bodies(server, "POST /queue") == ([{"delete": [other]}] if is_ours else [])


async def test_an_id_is_sent_once_even_if_asked_for_twice(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id = mint_prompt_id()
    server.replies["POST /prompt"] = says({"prompt_id": prompt_id, "number": 0, "node_errors": {}})
    server.replies["GET /queue"] = says(queue_of(running=[], pending=[[0, prompt_id, {}, {}, []]]))
    watch = await comfy.submit(picture(), prompt_id)
    with pytest.raises(ValueError, match="used once"):
        await comfy.submit(picture(), prompt_id)
    assert comfy.take_over(prompt_id) is watch
    assert server.asked("POST /prompt") == 1


async def test_closing_the_client_ends_its_waiters_with_an_error(server: HostileServer, small_client: Any) -> None:
    prompt_id = mint_prompt_id()
    server.replies["POST /prompt"] = says({"prompt_id": prompt_id, "number": 0, "node_errors": {}})
    server.replies["GET /queue"] = says(queue_of(running=[], pending=[[0, prompt_id, {}, {}, []]]))
    async with small_client() as comfy:
        watch = await comfy.submit(picture(), prompt_id)
    with pytest.raises(ClientClosed):
        await watch.outcome()
    assert [progress async for progress in watch.changes()] == []


async def test_a_servers_own_words_are_kept_without_our_secrets(server: HostileServer, comfy: ComfyClient) -> None:
    error = {"type": "x", "message": f"no good: ?token={TOKEN}", "details": TOKEN, "extra_info": {}}
    server.replies["POST /prompt"] = says({"error": error, "node_errors": {}}, status=400)
    with pytest.raises(ComfyError) as raised:
        await comfy.submit(picture(), mint_prompt_id())
    assert "no good" in raised.value.message
    assert TOKEN not in raised.value.failure().trace()
