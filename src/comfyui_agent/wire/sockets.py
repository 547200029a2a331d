"""The websocket of a client, from its first frame to its last. How frames are delivered is up to the server."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import dataclass
from typing import Protocol

from aiohttp import WSMsgType, web

from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.prompts import Json

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Client:
    """One open socket. Its `sid` is the id that the client gave itself, or a new one."""

    sid: str
    socket: web.WebSocketResponse
    request: web.Request

    def abort(self) -> None:
        """Drop the connection without a close frame."""
        if self.request.transport is not None:
            self.request.transport.abort()


class Delivery(Protocol):
    """Knows who is connected, and gets frames to them."""

    def join(self, client: Client) -> None: ...

    def leave(self, client: Client) -> None: ...

    def negotiate(self, client: Client, flags: Json) -> None:
        """Take note of the features that a client has."""

    async def reply(self, client: Client, event: str, data: Json) -> None:
        """Send a frame of the handshake to one socket."""


async def serve_socket(backend: Backend, request: web.Request, delivery: Delivery) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    client = Client(request.rel_url.query.get("clientId", "") or uuid.uuid4().hex, socket, request)
    delivery.join(client)
    try:
        status = {"exec_info": {"queue_remaining": await backend.remaining()}}
        await delivery.reply(client, "status", {"status": status, "sid": client.sid})
        for event, data in await backend.greeting(client.sid):
            await delivery.reply(client, event, data)
        await _listen(backend, client, delivery)
    finally:
        delivery.leave(client)
    return socket


async def _listen(backend: Backend, client: Client, delivery: Delivery) -> None:
    """Only the first message of a client can tell its features."""
    first = True
    async for message in client.socket:
        if message.type != WSMsgType.TEXT:
            continue
        try:
            data = json.loads(message.data)
            if first and data.get("type") == "feature_flags":
                delivery.negotiate(client, data.get("data", {}))
                await delivery.reply(client, "feature_flags", await backend.features())
            first = False
        except Exception:  # noqa: BLE001 - one bad message must not end the socket
            log.warning("a client sent a message that could not be understood")
