"""How frames reach the clients of the simulator: as in the real server, and with its weaknesses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from comfyui_agent.wire.frames import Preview, event_frame, preview_frame
from comfyui_agent.wire.prompts import Json
from comfyui_agent.wire.sockets import Client

log = logging.getLogger(__name__)


class OneSender:
    """All open sockets, by client id. One task sends everything, so that a client that stops reading holds up the
    others. A second socket of one id replaces the first, and is forgotten when the first closes."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._flags: dict[str, Json] = {}
        self._open: set[Client] = set()
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
        for client in self._open:
            client.abort()

    def join(self, client: Client) -> None:
        self._open.add(client)
        self._clients[client.sid] = client
        self._flags[client.sid] = {}

    def leave(self, client: Client) -> None:
        self._open.discard(client)
        self._clients.pop(client.sid, None)
        self._flags.pop(client.sid, None)

    def negotiate(self, client: Client, flags: Json) -> None:
        self._flags[client.sid] = flags

    async def reply(self, client: Client, event: str, data: Json) -> None:
        await self._send(event, data, client.sid)

    async def _send_all(self) -> None:
        while True:
            await self._send(*await self._outbox.get())

    async def _send(self, event: str, data: Any, client_id: str | None) -> None:
        if client_id is None:
            targets = list(self._clients.values())
        else:
            targets = [self._clients[client_id]] if client_id in self._clients else []
        if not targets:
            return
        if isinstance(data, Preview):
            frame: str | bytes = preview_frame(data, self.wants_preview_metadata(client_id))
        else:
            frame = event_frame(event, data)
        for client in targets:
            try:
                await (client.socket.send_bytes(frame) if isinstance(frame, bytes) else client.socket.send_str(frame))
            except (ConnectionError, RuntimeError):
                log.debug("a client went away while it was sent to")
