"""The websockets: who is connected, who hears what, and the order in which it is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import struct
import uuid
from typing import Any

from aiohttp import WSMsgType, web

from comfyui_agent.sim.engine.progress import Preview
from comfyui_agent.sim.engine.simulated import SimulatedEngine
from comfyui_agent.sim.prompt_queue import Json

log = logging.getLogger(__name__)

MAX_UPLOAD_BYTES = 100 * 1024 * 1024
FEATURES: Json = {
    "supports_preview_metadata": True,
    "max_upload_size": MAX_UPLOAD_BYTES,
    "extension": {"manager": {"supports_v4": True}},
}
PREVIEW = 1
PREVIEW_WITH_METADATA = 4
JPEG = 1


class Sockets:
    """All open sockets, by client id. As in the real server, one task sends everything, so that a client that stops
    reading holds up the others, and a second socket of one id replaces the first."""

    def __init__(self) -> None:
        self._sockets: dict[str, web.WebSocketResponse] = {}
        self._flags: dict[str, Json] = {}
        self._transports: dict[web.WebSocketResponse, asyncio.WriteTransport] = {}
        self._outbox: asyncio.Queue[tuple[str, Any, str | None]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._sender = self._loop.create_task(self._send_all())

    def send(self, event: str, data: Json | Preview, client_id: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended while the worker still had something to send
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, (event, data, client_id))

    def wants_preview_metadata(self, client_id: str | None) -> bool:
        return self._flags.get(client_id or "", {}).get("supports_preview_metadata", False) is True

    async def ended(self) -> None:
        """Wait until messages can no longer be sent; raises the reason."""
        await asyncio.shield(self._sender)

    async def close(self) -> None:
        """Drop all connections without a close frame, as a server that is stopped does."""
        self._sender.cancel()
        await asyncio.wait([self._sender])
        for transport in self._transports.values():
            transport.abort()

    async def serve(self, request: web.Request, engine: SimulatedEngine) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sid = request.rel_url.query.get("clientId", "") or uuid.uuid4().hex
        if isinstance(request.transport, asyncio.WriteTransport):
            self._transports[socket] = request.transport
        self._sockets[sid] = socket
        self._flags[sid] = {}
        try:
            status = {"exec_info": {"queue_remaining": engine.prompts.remaining()}}
            await self._send("status", {"status": status, "sid": sid}, sid)
            if engine.client_id == sid and engine.node_id is not None:
                await self._send("executing", {"node": engine.node_id}, sid)
            await self._listen(socket, sid)
        finally:
            self._transports.pop(socket, None)
            self._sockets.pop(sid, None)
            self._flags.pop(sid, None)
        return socket

    async def _listen(self, socket: web.WebSocketResponse, sid: str) -> None:
        first = True
        async for message in socket:
            if message.type != WSMsgType.TEXT:
                continue
            try:
                data = json.loads(message.data)
                if first and data.get("type") == "feature_flags":
                    self._flags[sid] = data.get("data", {})
                    await self._send("feature_flags", FEATURES, sid)
                first = False
            except Exception:  # noqa: BLE001 - one bad message must not end the socket
                log.warning("a client sent a message that could not be understood")

    async def _send_all(self) -> None:
        while True:
            await self._send(*await self._outbox.get())

    async def _send(self, event: str, data: Any, client_id: str | None) -> None:
        if client_id is None:
            targets = list(self._sockets.values())
        else:
            targets = [self._sockets[client_id]] if client_id in self._sockets else []
        if not targets:
            return
        if isinstance(data, Preview):
            frame: str | bytes = _preview_frame(data, self.wants_preview_metadata(client_id))
        else:
            frame = json.dumps({"type": event, "data": data})
        for socket in targets:
            try:
                await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
            except (ConnectionError, RuntimeError):
                log.debug("a client went away while it was sent to")


def _preview_frame(preview: Preview, described: bool) -> bytes:
    if not described:
        return struct.pack(">II", PREVIEW, JPEG) + preview.image
    metadata = json.dumps({**preview.metadata, "image_type": "image/jpeg"}).encode()
    return struct.pack(">II", PREVIEW_WITH_METADATA, len(metadata)) + metadata + preview.image
