"""Fault 22: whatever a server answers to whatever it is asked, the call ends soon, in an error that says why."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.comfy.outcomes import Failed
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.prompts import PromptId, mint_prompt_id
from support.graphs import picture
from support.hostile import (
    HostileServer,
    Reply,
    answer,
    assert_clear,
    assert_no_secret,
    assert_one_line,
    endless,
    never,
    raw,
    reset,
    says,
    side_by_side,
)
from support.sampling import some

SOON = 5.0
HTML = "<!doctype html>\n<html><body><h1>It works!</h1></body></html>"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def redirect(status: int) -> Reply:
    return answer(HTML, status=status, headers=("Location: http://127.0.0.2:9/elsewhere",))


NOT_HTTP: dict[str, Reply] = {
    "never_answers": never,
    "reset": reset,
    "closes_at_once": raw(b""),
    "not_http": raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "binary_junk": raw(bytes(range(256)) * 4),
    "bad_content_length": raw(OK + b"Content-Length: twelve\r\n\r\n{}"),
    "negative_content_length": raw(OK + b"Content-Length: -5\r\n\r\n{}"),
    "bad_chunks": raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    "cut_chunks": raw(OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{}"),
    "endless_headers": endless(OK, b"X-Filler: " + b"y" * 4000 + b"\r\n"),
    "endless_header_line": endless(OK + b"X-Filler: "),
    "endless_interim_answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "headers_only": endless(OK + b"Content-Length: 20\r\n\r\n", b"", pause=0.05),
    "slow_drip": endless(OK + b"\r\n", b" ", pause=0.05),
    "redirect_301": redirect(301),
    "redirect_302": redirect(302),
    "redirect_307": redirect(307),
    "redirect_308": redirect(308),
}
TOO_MUCH: dict[str, Reply] = {
    "endless_body": endless(OK + b"\r\n"),
    "endless_chunks": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "hundred_megabytes_declared": answer(b"{}", length=100_000_000),
    "exabytes_declared": answer(b"{}", length=10**18),
    "gzip_bomb": answer(gzip.compress(b" " * 20_000_000), headers=("Content-Encoding: gzip",)),
}
NOT_JSON: dict[str, Reply] = {
    "empty": answer(b""),
    "half_json": answer('{"queue_running": [], "queue_pen'),
    "more_promised_than_sent": answer("{}", length=50),
    "fewer_promised_than_sent": answer('{"queue_running": []}', length=5),
    "html_200": answer(HTML, kind="text/html"),
    "wrong_charset": answer('{"é": 1}'.encode("latin-1")),
    "deeply_nested": answer(b"[" * 90_000),
    "deeply_nested_objects": answer(b'{"a":' * 15_000),
    "number_of_5000_digits": answer(b"9" * 5000),
}
BAD_STATUS: dict[str, Reply] = {
    "html_500": answer(HTML, status=500, kind="text/html"),
    "html_502": answer(HTML, status=502, kind="text/html"),
    "login_page": answer(HTML, status=401, kind="text/html", headers=('WWW-Authenticate: Basic realm="x"',)),
    "teapot": answer(HTML, status=418),
    "no_content": answer(b"", status=204),
}
WRONG_JSON: dict[str, Reply] = {
    name: answer(text)
    for name, text in {
        "null": "null",
        "true": "true",
        "number": "12",
        "nan": "NaN",
        "infinity": "-Infinity",
        "huge_number": "1" + "0" * 400,
        "text": '"fine"',
        "list_of_nonsense": "[NaN, {}, [[]]]",
    }.items()
}

Call = Callable[[ComfyClient, Path], Awaitable[Any]]
PROMPT_ID = PromptId("01234567-89ab-4def-8123-456789abcdef")


async def download(comfy: ComfyClient, folder: Path) -> None:
    await comfy.download(ResultFile("2", "a.png", "", "output"), folder)


CALLS: dict[str, tuple[str, Call]] = {
    "queue": ("GET /queue", lambda comfy, _: comfy.queue()),
    "look_up": ("GET /history", lambda comfy, _: comfy.look_up(PROMPT_ID)),
    "system_stats": ("GET /system_stats", lambda comfy, _: comfy.system_stats()),
    "object_info": ("GET /object_info", lambda comfy, _: comfy.definitions.all()),
    "models": ("GET /models", lambda comfy, _: comfy.models()),
    "upload": ("POST /upload", lambda comfy, _: comfy.upload(b"bytes", "picture.png")),
    "download": ("GET /view", download),
}
STEPS: dict[str, tuple[str, Call]] = {
    "look_up_in_queue": ("GET /queue", lambda comfy, _: comfy.look_up(PROMPT_ID)),
    "cancel_seeing_queue": ("GET /queue", lambda comfy, _: comfy.cancel(PROMPT_ID, timeout=0.2)),
    "cancel_seeing_history": ("GET /history", lambda comfy, _: comfy.cancel(PROMPT_ID, timeout=0.2)),
    "free_seeing_stats": ("GET /system_stats", lambda comfy, _: comfy.free(timeout=0.2)),
    "freeing": ("POST /free", lambda comfy, _: comfy.free(timeout=0.2)),
}
PARSED = NOT_HTTP | TOO_MUCH | NOT_JSON | BAD_STATUS | WRONG_JSON
SOME = {
    name: PARSED[name] for name in ("never_answers", "reset", "not_http", "redirect_307", "endless_body", "html_500")
}


async def _ends_clearly(server: HostileServer, work: Awaitable[Any]) -> ComfyError:
    started = time.monotonic()
    with pytest.raises(ComfyError) as caught:
        await asyncio.wait_for(work, SOON)
    assert time.monotonic() - started < SOON
    assert_clear(caught.value, server)
    return caught.value


@pytest.mark.parametrize("reply", SOME.values(), ids=SOME)
async def test_nonsense_while_a_waiting_prompt_is_cancelled_ends_in_a_clear_error(
    server: HostileServer, comfy: ComfyClient, reply: Reply
) -> None:
    server.replies["GET /queue"] = says({"queue_running": [], "queue_pending": [[0, PROMPT_ID, {}, {}, []]]})
    server.replies["POST /queue"] = reply
    await _ends_clearly(server, comfy.cancel(PROMPT_ID, timeout=0.2))


@pytest.mark.parametrize("route", ["GET /system_stats", "POST /interrupt"])
@pytest.mark.parametrize("reply", SOME.values(), ids=SOME)
async def test_nonsense_while_a_running_prompt_is_cancelled_ends_in_a_clear_error(
    server: HostileServer, comfy: ComfyClient, route: str, reply: Reply
) -> None:
    server.replies["GET /queue"] = says({"queue_running": [[0, PROMPT_ID, {}, {}, []]], "queue_pending": []})
    server.replies[route] = reply
    await _ends_clearly(server, comfy.cancel(PROMPT_ID, timeout=0.2))


async def test_nonsense_ends_in_a_clear_error(fresh: Callable[..., Any], folder: Path) -> None:
    async def check(question: str, name: str) -> None:
        route, call = (CALLS | STEPS)[question]
        place = folder / f"{question}-{name}"
        place.mkdir()
        async with fresh(f"{question}, {name}") as (server, comfy):
            server.replies[route] = PARSED[name]
            await _ends_clearly(server, call(comfy, place))
            assert not list(place.iterdir())

    await side_by_side(check(*case) for case in [*product(CALLS, PARSED), *product(STEPS, SOME)])


async def test_a_prompt_whose_answer_is_nonsense_is_looked_up_and_never_sent_again(fresh: Callable[..., Any]) -> None:
    async def check(name: str) -> None:
        async with fresh(name) as (server, comfy):
            server.replies["POST /prompt"] = PARSED[name]
            await _ends_clearly(server, comfy.submit(picture(), mint_prompt_id()))
            assert server.asked("POST /prompt") == 1

    await side_by_side((check(name) for name in PARSED), at_once=2)


@pytest.mark.parametrize("where", some(["GET /queue", "GET /history"], 3))
async def test_a_watch_over_nonsense_ends_with_a_class_and_a_reason(fresh: Callable[..., Any], where: str) -> None:
    unreadable = {FailureClass.OUTPUT} if where == "GET /history" else set()

    async def check(name: str) -> None:
        async with fresh(name) as (server, comfy):
            server.replies[where] = PARSED[name]
            outcome = await comfy.take_over(mint_prompt_id(), picture()).outcome(SOON)
            assert isinstance(outcome, Failed)
            assert outcome.failure.kind in {FailureClass.SERVER_LOST} | unreadable
            assert_one_line(outcome.failure.message)
            assert_no_secret(repr(outcome) + outcome.failure.trace())
            assert server.name in outcome.failure.message

    await side_by_side(check(name) for name in PARSED)


@pytest.mark.parametrize("reply", [pytest.param(reply, id=name) for name, reply in SOME.items()])
async def test_a_watch_ends_though_node_definitions_are_nonsense(
    server: HostileServer, comfy: ComfyClient, reply: Reply
) -> None:
    prompt_id, graph = mint_prompt_id(), picture()
    entry = {
        "prompt": [0, prompt_id, graph, {}, ["2"]],
        "outputs": {"2": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}]}},
        "status": {"status_str": "success", "completed": True, "messages": [["execution_success", {}]]},
    }
    server.replies["GET /history"] = answer(json.dumps({prompt_id: entry}))
    server.replies["GET /object_info"] = reply
    outcome = await comfy.take_over(prompt_id, graph).outcome(SOON)
    assert_no_secret(repr(outcome))
