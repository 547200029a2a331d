"""Fault 22: what a client holds of a hostile answer is bounded, and what it shows of its address holds no secret."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError, PromptRejected
from comfyui_agent.comfy.results import ResultFile
from comfyui_agent.domain.prompts import mint_prompt_id
from support.graphs import picture
from support.hostile import (
    PASSWORD,
    TOKEN,
    USER,
    HostileServer,
    answer,
    assert_clear,
    assert_no_secret,
    endless,
    hostile_server,
    says,
)

MB = 1024 * 1024
ROUTES: dict[str, Callable[[ComfyClient, Path], Awaitable[Any]]] = {
    "GET /queue": lambda comfy, _: comfy.queue(),
    "POST /prompt": lambda comfy, _: comfy.submit(picture(), mint_prompt_id()),
    "POST /upload": lambda comfy, _: comfy.upload(b"x", "x.png"),
    "GET /view": lambda comfy, folder: comfy.download(ResultFile("2", "a.png", "", "output"), folder),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_an_endless_body_costs_little_memory(
    server: HostileServer, comfy: ComfyClient, folder: Path, route: str
) -> None:
    server.replies[route] = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"[" * 65536)
    tracemalloc.start()
    try:
        with pytest.raises(ComfyError):
            await ROUTES[route](comfy, folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * MB


async def test_endless_headers_cost_little_memory(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["GET /queue"] = endless(b"HTTP/1.1 200 OK\r\n", (b"X: " + b"y" * 4_000 + b"\r\n") * 16)
    tracemalloc.start()
    try:
        with pytest.raises(ComfyError):
            await comfy.queue()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * MB


async def test_secrets_reach_the_server_and_no_text_of_the_client(server: HostileServer, comfy: ComfyClient) -> None:
    await comfy.queue()
    asked = server.questions[-1]
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    assert asked.headers["authorization"] == f"Basic {login}"
    assert asked.query["token"] == [TOKEN]
    assert_no_secret(f"{comfy!r} {comfy.address} {comfy.address!r} {vars(comfy)!r} {vars(comfy._transport)!r}")


async def test_the_websocket_is_opened_with_the_secrets(server: HostileServer, comfy: ComfyClient) -> None:
    async with ComfyClient(server.url, limits=comfy.limits):
        await server.until_asked("GET /ws")
    asked = next(question for question in server.questions if question.route == "GET /ws")
    assert asked.query["token"] == [TOKEN]
    assert asked.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("status", [200, 400, 418, 500])
@pytest.mark.parametrize("route", ROUTES)
async def test_an_error_page_that_repeats_the_address_is_shown_without_its_secrets(
    server: HostileServer, comfy: ComfyClient, folder: Path, route: str, status: int
) -> None:
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    page = f"Cannot serve {server.url} /queue?token={TOKEN} to {login} ({PASSWORD})"
    server.replies[route] = answer(page, status=status, kind="text/plain")
    with pytest.raises(ComfyError) as caught:
        await ROUTES[route](comfy, folder)
    assert_clear(caught.value, server)


async def test_an_unreachable_server_is_named_without_secrets(comfy: ComfyClient) -> None:
    async with hostile_server() as gone:
        url, name = gone.url, gone
    async with ComfyClient(url, limits=comfy.limits, listen=False) as client:
        with pytest.raises(ComfyError) as caught:
            await client.queue()
    assert_clear(caught.value, name)


async def test_cookies_are_not_kept(server: HostileServer, comfy: ComfyClient) -> None:
    empty = b'{"queue_running": [], "queue_pending": []}'
    server.replies["GET /queue"] = answer(empty, headers=("Set-Cookie: tracking=1; Path=/",))
    await comfy.queue()
    await comfy.queue()
    assert "cookie" not in server.questions[-1].headers


async def test_a_rejection_names_the_server_without_secrets(server: HostileServer, comfy: ComfyClient) -> None:
    server.replies["POST /prompt"] = says({"error": {"type": "no_prompt", "message": "No prompt"}}, status=400)
    with pytest.raises(PromptRejected) as caught:
        await comfy.submit(picture(), mint_prompt_id())
    assert_clear(caught.value, server)


@pytest.mark.parametrize("name", ['a"b.png', "a\r\nX-Injected: yes\r\n\r\n.png", "é\0.png", "\udcff.png"], ids=ascii)
async def test_an_upload_carries_its_name_as_a_name_and_nothing_more(
    server: HostileServer, comfy: ComfyClient, name: str
) -> None:
    await comfy.upload(b"bytes", name)
    head = server.questions[-1].body.split(b"bytes")[0]
    assert b"\r\nX-Injected" not in head
