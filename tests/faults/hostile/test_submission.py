"""Faults 3, 13 and 22: whatever becomes of the answer to a prompt, it is sent once and its fate is found out."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import AcceptanceUnknown, NotAccepted, NotComfyUI, PromptRejected, RedirectRefused
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from support.graphs import picture
from support.hostile import HostileServer, answer, assert_clear, in_turn, never, reset, says

SOON = 5.0


def queue_with(prompt_id: str, graph: Any) -> dict[str, Any]:
    return {"queue_running": [[0, prompt_id, graph, {}, ["2"]]], "queue_pending": []}


def history_of(prompt_id: str, graph: Any, **changes: Any) -> dict[str, Any]:
    entry = {
        "prompt": [0, prompt_id, graph, {}, ["2"]],
        "outputs": {"2": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}},
        "status": {"status_str": "success", "completed": True, "messages": [["execution_success", {}]]},
    }
    return {prompt_id: entry | changes}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(answer("Internal Server Error", status=500), id="error_500"),
        pytest.param(answer("<h1>Bad gateway</h1>", status=502), id="error_502"),
        pytest.param(answer("", status=200), id="empty_200"),
        pytest.param(says({"number": 3, "node_errors": {}}), id="no_prompt_id"),
        pytest.param(says({"prompt_id": 7}), id="wrong_type_of_prompt_id"),
        pytest.param(reset, id="reset"),
        pytest.param(never, id="never"),
    ],
)
async def test_a_prompt_that_was_queued_all_the_same_is_watched(
    server: HostileServer, comfy: ComfyClient, reply: Any
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["POST /prompt"] = reply
    server.replies["GET /queue"] = in_turn(says(queue_with(prompt_id, graph)), server.replies["GET /queue"])
    server.replies["GET /history"] = says(history_of(prompt_id, graph))
    watch = await comfy.submit(graph, prompt_id)
    assert isinstance(await watch.outcome(SOON), Succeeded)
    assert server.asked("POST /prompt") == 1


async def test_an_answer_about_another_prompt_is_not_believed(server: HostileServer, comfy: ComfyClient) -> None:
    other = mint_prompt_id()
    server.replies["POST /prompt"] = says({"prompt_id": other, "number": 0, "node_errors": {}})
    with pytest.raises(NotAccepted) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)
    assert server.asked("POST /prompt") == 1


async def test_an_answer_about_another_prompt_from_a_dying_server_leaves_acceptance_unknown(
    server: HostileServer, comfy: ComfyClient
) -> None:
    server.replies["POST /prompt"] = says({"prompt_id": mint_prompt_id(), "number": 0, "node_errors": {}})
    server.replies["POST /queue"] = reset
    server.replies["GET /queue"] = reset
    with pytest.raises(AcceptanceUnknown) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)


async def test_when_nothing_can_be_asked_the_prompt_may_have_arrived(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["POST /prompt"] = reset
    server.replies["GET /queue"] = answer("<html>", status=503)
    with pytest.raises(AcceptanceUnknown) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)
    assert server.asked("POST /prompt") == 1


async def test_a_prompt_is_not_carried_to_where_a_redirect_points(server: HostileServer, comfy: ComfyClient) -> None:
    elsewhere = (f"Location: {server.name}/elsewhere",)
    server.replies["POST /prompt"] = answer("", status=307, headers=elsewhere)
    with pytest.raises(RedirectRefused) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)
    assert server.asked("POST /elsewhere") == 0


@pytest.mark.parametrize("status", [401, 403, 404, 405])
async def test_something_that_is_no_comfyui_is_named_so(server: HostileServer, comfy: ComfyClient, status: int) -> None:
    server.replies["POST /prompt"] = answer("<html>", status=status)
    with pytest.raises(NotComfyUI) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)


@pytest.mark.parametrize(
    "body",
    [
        '{"error": {"type": "invalid_prompt", "message": "line one\\nline two \\u0000\\ud800", "details": NaN}}',
        '{"error": "a text"}',
        '{"error": null, "node_errors": [1, 2]}',
        '{"error": {"message": {"deep": []}}, "node_errors": {"1": {"errors": {"a": 1}}, "2": null}}',
        '{"error": {"type": "invalid_prompt", "message": "' + "node " * 20_000 + '"}}',
        '{"error": {"details": "' + "#" * 300_000 + '"}}',
        '{"error": {}, "node_errors": {' + ",".join(f'"{n}": {{}}' for n in range(20_000)) + "}}",
        "<html>\n<body>nginx: bad request</body>",
        "",
        "[1]",
    ],
    ids=lambda body: body[:40],
)
async def test_a_rejection_of_any_shape_is_a_rejection_in_one_line(
    server: HostileServer, comfy: ComfyClient, body: str
) -> None:
    server.replies["POST /prompt"] = answer(body, status=400)
    with pytest.raises(PromptRejected) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)
    assert len(caught.value.details) <= 100
    assert server.asked("POST /prompt") == 1


async def test_a_prompt_too_large_for_the_server_is_invalid(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["POST /prompt"] = answer("Maximum request body size exceeded", status=413)
    with pytest.raises(PromptRejected) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert caught.value.kind is FailureClass.INVALID
    assert_clear(caught.value, server)


@pytest.mark.parametrize(
    "node_errors",
    [
        {"4": {"errors": [{"type": "value_bigger_than_max", "message": "too big"}], "class_type": "SaveImage"}},
        {"4": "nonsense"},
        {"4": {"errors": [None]}},
    ],
    ids=["well_formed", "text", "null"],
)
async def test_node_errors_in_an_accepted_prompt_make_its_success_a_failure(
    server: HostileServer, comfy: ComfyClient, node_errors: Any
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["POST /prompt"] = says({"prompt_id": prompt_id, "number": 0, "node_errors": node_errors})
    server.replies["GET /history"] = says(history_of(prompt_id, graph))
    outcome = await (await comfy.submit(graph, prompt_id)).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.INVALID
    assert outcome.failure.node_id == "4"


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": None},
        {"outputs": []},
        {"prompt": None},
        {"prompt": {}},
        {"status": "done"},
        {"status": {"messages": {"execution_success": {}}}},
        {"status": {"messages": "success"}},
    ],
    ids=str,
)
async def test_a_history_entry_of_another_shape_ends_the_watch_with_a_reason(
    server: HostileServer, comfy: ComfyClient, changes: dict[str, Any]
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    server.replies["GET /history"] = says(history_of(prompt_id, graph, **changes))
    outcome = await comfy.take_over(prompt_id, graph).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.OUTPUT
    assert server.name in outcome.failure.message


@pytest.mark.parametrize("class_type", ["\ud800", "../..", "a/b?c#d", "x" * 5_000, "é", ""], ids=ascii)
async def test_node_classes_with_impossible_names_do_not_stop_the_watching(
    server: HostileServer, comfy: ComfyClient, class_type: str
) -> None:
    prompt_id = mint_prompt_id()
    graph = {"1": {"class_type": class_type, "inputs": {}}}
    server.replies["GET /history"] = says(history_of(prompt_id, graph))
    await comfy.take_over(prompt_id).outcome(SOON)


async def test_a_graph_of_countless_classes_costs_few_questions(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id = mint_prompt_id()
    graph = {str(n): {"class_type": f"Node{n}", "inputs": {}} for n in range(1_000)}
    server.replies["GET /history"] = says(history_of(prompt_id, graph))
    assert isinstance(await comfy.take_over(prompt_id).outcome(SOON), Succeeded)
    assert server.asked("GET /object_info") < 50


async def test_a_large_file_answered_from_the_cache_is_seen_to_exist(server: HostileServer, comfy: ComfyClient) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    messages = [["execution_cached", {"nodes": ["1", "2"]}], ["execution_success", {}]]
    status = {"status_str": "success", "completed": True, "messages": messages}
    server.replies["GET /history"] = says(history_of(prompt_id, graph, status=status))
    server.replies["HEAD /view"] = answer("", length=50_000_000, kind="image/png")
    assert isinstance(await comfy.take_over(prompt_id, graph).outcome(SOON), Succeeded)


async def test_a_file_answered_from_the_cache_that_is_gone_is_an_output_failure(
    server: HostileServer, comfy: ComfyClient
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    messages = [["execution_cached", {"nodes": ["1", "2"]}], ["execution_success", {}]]
    status = {"status_str": "success", "completed": True, "messages": messages}
    server.replies["GET /history"] = says(history_of(prompt_id, graph, status=status))
    outcome = await comfy.take_over(prompt_id, graph).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.OUTPUT
