"""Faults 9 and 22: the websocket is a hint. Whatever comes over it, history decides, and the client stays small."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.outcomes import Failed, Succeeded
from comfyui_agent.comfy.watch import Watch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import mint_prompt_id
from support.graphs import picture
from support.hostile import (
    BINARY,
    CLOSE,
    PING,
    HostileServer,
    Writer,
    accept_websocket,
    answer,
    endless_frames,
    event,
    frame,
    frames,
    in_turn,
    never,
    raw,
    reset,
    says,
)

SOON = 5.0
PROMPT_ID = mint_prompt_id()
GRAPH = picture()
FILE = {"filename": "a.png", "subfolder": "", "type": "output"}
RUNNING = {"queue_running": [[0, PROMPT_ID, GRAPH, {}, ["2"]]], "queue_pending": []}
IDLE: dict[str, Any] = {"queue_running": [], "queue_pending": []}
SUCCESS = {
    "prompt": [0, PROMPT_ID, GRAPH, {}, ["2"]],
    "outputs": {"2": {"images": [FILE]}},
    "status": {"status_str": "success", "completed": True, "messages": [["execution_success", {}]]},
}


def about(kind: str, **data: Any) -> bytes:
    return event(kind, prompt_id=PROMPT_ID, **data)


GARBAGE: dict[str, bytes] = {
    "not_json": frame("{{{"),
    "deeply_nested": frame("[" * 50_000),
    "number_of_5000_digits": frame("9" * 5_000),
    "wrong_types": frame("[1, 2]")
    + frame('{"type": 5}')
    + frame('{"type": "executing", "data": [null]}')
    + frame("null"),
    "no_data": frame('{"type": "executing"}'),
    "other_prompt": event("execution_error", prompt_id="someone else's", exception_message="x"),
    "prompt_id_of_a_wrong_type": event("executing", prompt_id=["a"], node=None),
    "node_of_a_wrong_type": about("executing", node={"a": 1}) + about("executed", node=7, output={"images": [FILE]}),
    "progress_of_wrong_types": about("progress", value="1", max=None) + about("progress", value=[], max={}),
    "progress_beyond_all_numbers": frame(
        f'{{"type":"progress","data":{{"prompt_id":"{PROMPT_ID}","value":1{"0" * 400},"max":NaN,"node":"\\ud800"}}}}'
    ),
    "infinite_progress": frame(
        f'{{"type":"progress","data":{{"prompt_id":"{PROMPT_ID}","value":-Infinity,"max":Infinity}}}}'
    ),
    "cached_of_a_wrong_type": about("execution_cached", nodes="all"),
    "output_of_a_wrong_type": about("executed", node="2", output=None) + about("executed", node="2", output=[1]),
    "unknown_kind": about("execution_teleported", node="2"),
    "half_a_character": about("executing", node="\ud800"),
    "binary_junk": frame(bytes(range(256)), BINARY),
    "short_binary": frame(b"\0\0", BINARY),
    "preview_of_no_format": frame(b"\0\0\0\1\0\0\0\7abc", BINARY),
    "metadata_longer_than_the_frame": frame(b"\0\0\0\4\xff\xff\xff\xff{}", BINARY),
    "metadata_that_is_no_json": frame(b"\0\0\0\4\0\0\0\2xxabc", BINARY),
    "a_frame_over_the_limit": frame("x" * 500_000),
    "a_frame_that_claims_exabytes": frame(b"x", length=2**62),
    "text_that_is_no_utf8": frame(b"\xff\xfe\xfd"),
    "bad_opcode": bytes([0x83, 0]),
    "reserved_bits": bytes([0xF1, 2]) + b"{}",
    "masked_by_the_server": bytes([0x81, 0x82, 1, 2, 3, 4, 5, 6]),
    "fragment_without_a_start": bytes([0x80, 2]) + b"{}",
    "huge_ping": frame(b"x" * 200, PING),
    "close_1000": frame(b"\x03\xe8", CLOSE),
    "close_1011": frame(b"\x03\xf3oops", CLOSE),
    "close_with_a_bad_code": frame(b"\x00\x01", CLOSE),
    "close_with_half_a_code": frame(b"\x03", CLOSE),
    "not_a_frame": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


def scripted(server: HostileServer, *sent: bytes, queue: Any = None, history: Any = None) -> asyncio.Event:
    """Once the returned event is set, the prompt has ended by queue and history; until then it runs."""
    ended = asyncio.Event()

    async def look(question: Any, writer: Writer) -> None:
        await says((queue or IDLE) if ended.is_set() else RUNNING)(question, writer)

    async def recall(question: Any, writer: Writer) -> None:
        await says(({PROMPT_ID: SUCCESS} if history is None else history) if ended.is_set() else {})(question, writer)

    server.replies["POST /prompt"] = says({"prompt_id": PROMPT_ID, "number": 0, "node_errors": {}})
    server.replies["GET /queue"] = look
    server.replies["GET /history"] = recall
    server.frames = frames(*sent)
    return ended


async def test_garbage_changes_nothing_about_the_outcome(fresh: Callable[..., Any]) -> None:
    for name, garbage in GARBAGE.items():
        async with fresh(name, listen=True) as (server, listening):
            ended = scripted(server, garbage * 3)
            watch = await listening.submit(GRAPH, PROMPT_ID)
            ended.set()
            assert isinstance(await watch.outcome(SOON), Succeeded)
            assert server.asked("POST /prompt") == 1


async def test_a_socket_goes_on_or_is_replaced_after_garbage(fresh: Callable[..., Any]) -> None:
    """A frame that comes after the garbage, on this socket or the next, is heard."""
    for name, garbage in GARBAGE.items():
        async with fresh(name, listen=True) as (server, listening):
            ended = scripted(server)
            server.frames = partial(garbage_then_step_seven, [garbage])
            watch = listening.take_over(PROMPT_ID, GRAPH)
            await asyncio.wait_for(step_seven(watch), SOON)
            ended.set()
            assert isinstance(await watch.outcome(SOON), Succeeded)


async def garbage_then_step_seven(garbage: list[bytes], writer: Writer) -> None:
    """Garbage on the first socket only; step seven on every one."""
    first = garbage.pop() if garbage else b""
    await frames(first + about("executing", node="1") + about("progress", value=7, max=9))(writer)


async def step_seven(watch: Watch) -> None:
    if watch.progress.step != 7:
        async for progress in watch.changes():
            if progress.step == 7:
                return


LIES = {
    "ended": about("executing", node=None),
    "succeeded": about("execution_success") + about("executing", node=None),
    "gave_files": about("executed", node="2", output={"images": [FILE]}) + about("execution_success"),
    "failed": about("execution_error", node_id="2", exception_message="lie") + about("executing", node=None),
    "interrupted": about("execution_interrupted", node_id="2") + about("executing", node=None),
}


@pytest.mark.parametrize("lie", [pytest.param(sent, id=name) for name, sent in LIES.items()])
async def test_a_lie_about_the_end_of_a_running_prompt_is_not_believed(
    server: HostileServer, listening: ComfyClient, lie: bytes
) -> None:
    ended = scripted(server, lie)
    watch = await listening.submit(GRAPH, PROMPT_ID)
    await server.until_asked("GET /queue", 5)
    assert not watch.is_over
    ended.set()
    assert isinstance(await watch.outcome(SOON), Succeeded)


@pytest.mark.parametrize("lie", [pytest.param(sent, id=name) for name, sent in LIES.items()])
async def test_a_lie_about_success_of_a_vanished_prompt_is_no_success_without_its_files(
    server: HostileServer, listening: ComfyClient, lie: bytes
) -> None:
    scripted(server, lie, history={}).set()
    outcome = await (await listening.submit(GRAPH, PROMPT_ID)).outcome(SOON)
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is FailureClass.SERVER_LOST


async def test_a_vanished_prompt_whose_files_were_heard_of_and_exist_has_succeeded(
    server: HostileServer, listening: ComfyClient
) -> None:
    ended = scripted(server, LIES["gave_files"], about("progress", value=7, max=9), history={})
    server.replies["HEAD /view"] = answer("", length=10_000_000)
    watch = await listening.submit(GRAPH, PROMPT_ID)
    await asyncio.wait_for(step_seven(watch), SOON)
    ended.set()
    outcome = await watch.outcome(SOON)
    assert isinstance(outcome, Succeeded)
    assert outcome.evidence == "websocket"


ENDLESS = {
    "ended": about("executing", node=None),
    "errors": about("execution_error", node_id="2", exception_message="x" * 50_000),
    "outputs": b"".join(about("executed", node=str(n), output={"text": ["y" * 10_000]}) for n in range(1_000)),
    "previews": frame(b"\0\0\0\1\0\0\0\1" + b"z" * 100_000, BINARY),
    "junk": frame(b"w" * 100_000, BINARY),
    "pings": frame(b"ping", PING) * 100,
}


@pytest.mark.timing
@pytest.mark.parametrize("sent", [pytest.param(sent, id=name) for name, sent in ENDLESS.items()])
async def test_endless_frames_neither_fill_the_memory_nor_hold_up_the_end(
    server: HostileServer, sent: bytes, small_client: Callable[[], ComfyClient]
) -> None:
    ended = scripted(server)
    server.frames = endless_frames(sent)
    async with small_client() as comfy:
        watch = await comfy.submit(GRAPH, PROMPT_ID)
        await server.until_asked("GET /queue", 5)
        assert sum(len(json.dumps(error)) for error in watch.heard.errors) < 100_000
        assert sum(len(json.dumps(output)) for output in watch.heard.outputs.values()) < 5_000_000
        ended.set()
        assert isinstance(await watch.outcome(SOON), Succeeded)
        leaving = time.monotonic()
    assert time.monotonic() - leaving < 4.0


async def test_a_flood_of_endings_is_one_question_at_a_time(server: HostileServer, listening: ComfyClient) -> None:
    scripted(server)
    server.replies["GET /history"] = never
    server.frames = endless_frames(ENDLESS["ended"])
    await listening.submit(GRAPH, PROMPT_ID)
    await server.until_asked("GET /queue", 4)
    assert 1 <= server.asked("GET /history") <= 3


@pytest.mark.parametrize("name", ["junk", "pings"])
async def test_a_socket_that_sends_only_junk_is_replaced_though_it_never_falls_silent(
    server: HostileServer, listening: ComfyClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.comfy.listener.CLOSE_SECONDS", 0.1)
    ended = scripted(server)
    server.frames = endless_frames(ENDLESS[name])
    watch = await listening.submit(GRAPH, PROMPT_ID)
    await asyncio.wait_for(server.until_asked("GET /ws"), SOON)
    ended.set()
    assert isinstance(await watch.outcome(SOON), Succeeded)


HANDSHAKES: dict[str, Any] = {
    "never": never,
    "reset": reset,
    "html": answer("<html>", kind="text/html"),
    "not_found": answer("", status=404),
    "login": answer("", status=401),
    "not_http": raw(b"\0\1\2\3"),
    "wrong_accept": raw(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: no\r\n\r\n"
    ),
}


@pytest.mark.parametrize("handshake", [pytest.param(reply, id=name) for name, reply in HANDSHAKES.items()])
async def test_without_a_websocket_the_outcome_is_found_by_looking(
    server: HostileServer, small_client: Callable[[], ComfyClient], handshake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comfyui_agent.comfy.client.FIRST_SOCKET_SECONDS", 0.2)
    ended = scripted(server)
    server.replies["GET /ws"] = handshake
    async with small_client() as comfy:
        watch = await comfy.submit(GRAPH, PROMPT_ID)
        ended.set()
        assert isinstance(await watch.outcome(SOON), Succeeded)
        assert not comfy.websocket_is_open


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_websocket_handshake_is_not_redirected(
    server: HostileServer, small_client: Callable[[], ComfyClient], status: int
) -> None:
    asked_again = asyncio.Event()

    async def redirect(question: Any, writer: Writer) -> None:
        if server.asked("GET /ws") > 1:
            asked_again.set()
        await answer("", status=status, headers=(f"Location: {server.name}/elsewhere",))(question, writer)

    server.replies["GET /ws"] = redirect
    async with small_client() as comfy:
        await asyncio.wait_for(asked_again.wait(), SOON)
        assert not comfy.websocket_is_open
    assert server.asked("GET /elsewhere") == 0


async def test_a_websocket_that_was_refused_once_is_opened_the_next_time(
    server: HostileServer, listening: ComfyClient
) -> None:
    async def accept(question: Any, writer: Writer) -> None:
        await accept_websocket(question, writer)
        await asyncio.Event().wait()

    server.replies["GET /ws"] = in_turn(reset, accept)
    assert await listening._watches.listener.wait_open(SOON)
