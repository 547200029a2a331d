"""Custom nodes speak to the clients of the gateway as they do to those of the editor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from comfyui_agent.clock import MONOTONIC_CLOCK
from comfyui_agent.comfy.address import NoServer, ServerAddress
from comfyui_agent.comfy.limits import Limits
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.gateway import editor_sockets as module
from comfyui_agent.gateway.editor_sockets import EditorSockets
from comfyui_agent.wire.sockets import Client, Delivery

OWN = [
    *("status", "feature_flags", "executing", "executed", "progress", "progress_state"),
    *("execution_start", "execution_cached", "execution_success", "execution_error", "execution_interrupted"),
]
FOREIGN = ["manager-terminal-feedback", "impact-node-feedback", "executing_soon", "progress_text", "crystools.monitor"]


def event(kind: str) -> str:
    return json.dumps({"type": kind, "data": {"type": "status"}})


class Editor:
    """A ComfyUI with websockets alone, which may be away."""

    def __init__(self) -> None:
        self.sockets: dict[str, web.WebSocketResponse] = {}
        self.log: list[str] = []
        self.changed = asyncio.Condition()
        app = web.Application()
        app.router.add_get("/ws", self._serve)
        self.server = TestServer(app)

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        client_id = request.query["clientId"]
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self._note(client_id, "open", socket)
        async for _ in socket:
            pass
        await self._note(client_id, "closed", None)
        return socket

    async def _note(self, client_id: str, what: str, socket: web.WebSocketResponse | None) -> None:
        async with self.changed:
            self.log.append(f"{client_id} {what}")
            if socket is not None:
                self.sockets[client_id] = socket
            self.changed.notify_all()

    async def until(self, *log: str) -> None:
        """Until exactly this has happened, in this order."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.log) >= len(log)), 10)
        assert self.log == list(log)


class Inner:
    """The delivery behind: it knows who is connected."""

    def __init__(self) -> None:
        self.joined: list[str] = []

    def join(self, client: Client) -> None:
        self.joined.append(client.sid)

    def leave(self, client: Client) -> None:
        self.joined.remove(client.sid)


class Scene:
    def __init__(self, editor: Editor) -> None:
        self.editor = editor
        self.inner = Inner()
        self.heard: asyncio.Queue[tuple[str, str | bytes]] = asyncio.Queue()
        url = str(editor.server.make_url("/"))
        self.transport = Transport(ServerAddress.parse(url), Limits(poll_seconds=0.01, is_quiet=True))
        self.sockets = EditorSockets(
            cast("Delivery", self.inner),
            lambda: self.transport,
            lambda client_id, frame: self.heard.put_nowait((client_id, frame)),
            MONOTONIC_CLOCK,
        )


def client(sid: str) -> Client:
    nobody: Any = None
    return Client(sid, nobody, nobody)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    editor = Editor()
    await editor.server.start_server()
    made = Scene(editor)
    yield made
    await made.sockets.close()
    await made.transport.close()
    await editor.server.close()


async def test_what_is_not_comfyuis_own_reaches_the_client_that_it_is_for(scene: Scene) -> None:
    for sid in ("a", "b"):
        scene.sockets.join(client(sid))
    await scene.editor.until("a open", "b open")
    assert scene.inner.joined == ["a", "b"]
    socket = scene.editor.sockets["b"]
    for kind in OWN:
        await socket.send_str(event(kind))
    for number in (1, 4):
        await socket.send_bytes(number.to_bytes(4, "big") + b"picture")
    said: list[str | bytes] = [*map(event, FOREIGN), '{"type":"status_of_mine"}', "no json", b"\0\0\0\3text", b"x"]
    for frame in said:
        await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
    assert [await scene.heard.get() for _ in said] == [("b", frame) for frame in said]
    assert scene.heard.empty()


async def test_a_socket_is_there_while_one_client_of_its_id_is(scene: Scene) -> None:
    first, second = client("a"), client("a")
    scene.sockets.join(first)
    scene.sockets.join(second)
    await scene.editor.until("a open")
    scene.sockets.leave(first)
    assert scene.inner.joined == ["a"]
    scene.sockets.leave(second)
    await scene.editor.until("a open", "a closed")
    assert scene.sockets._clients == {}


async def test_one_is_closed_before_the_next_is_opened(scene: Scene) -> None:
    for _ in range(3):
        scene.sockets.join(reloaded := client("a"))
        scene.sockets.leave(reloaded)
    scene.sockets.join(page := client("a"))
    await scene.editor.until("a open")
    scene.sockets.leave(page)
    await asyncio.sleep(0)  # it has begun to close
    scene.sockets.join(client("a"))
    await scene.editor.until("a open", "a closed", "a open")


async def test_a_lost_socket_is_opened_again(scene: Scene) -> None:
    scene.sockets.join(client("a"))
    await scene.editor.until("a open")
    await scene.editor.sockets["a"].close()
    await scene.editor.until("a open", "a closed", "a open")
    await scene.editor.sockets["a"].send_str(event(FOREIGN[0]))
    assert await scene.heard.get() == ("a", event(FOREIGN[0]))


async def test_only_so_many_clients_have_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SOCKETS", 1)
    a, b = client("a"), client("b")
    scene.sockets.join(a)
    scene.sockets.join(b)
    await scene.editor.until("a open")
    scene.sockets.leave(b)
    scene.sockets.leave(a)
    await scene.editor.until("a open", "a closed")


async def test_without_an_editor_clients_are_served_all_the_same(scene: Scene) -> None:
    def nobody() -> Transport:
        raise NoServer("there is none")

    sockets = EditorSockets(cast("Delivery", scene.inner), nobody, lambda *_: None, MONOTONIC_CLOCK)
    sockets.join(page := client("a"))
    await asyncio.sleep(0)
    sockets.leave(page)
    await sockets.close()
    assert scene.inner.joined == []
