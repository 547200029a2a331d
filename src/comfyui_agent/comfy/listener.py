"""The websocket of one client. It is kept open, and its frames are only hints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import aiohttp

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.frames import Event, Preview, read_binary, read_text
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.comfy.transport import Transport

log = logging.getLogger(__name__)

FEATURES = {"type": "feature_flags", "data": {"supports_preview_metadata": True}}
SLOWEST_RECONNECT = 5.0
CLOSE_SECONDS = 1.0
READERS: dict[aiohttp.WSMsgType, Callable[[Any], Event | Preview | None]] = {
    aiohttp.WSMsgType.TEXT: read_text,
    aiohttp.WSMsgType.BINARY: read_binary,
}

Tap = Callable[[str | bytes], None]
"""Called with every frame as it came, before it is read. It must not block."""
Socket: TypeAlias = "aiohttp.ClientWebSocketResponse[bool]"


class Listener:
    """Reads one websocket and passes every frame to `hear`, which must not block.

    A server that notices the end of a socket stops sending to a newer one of the same client id, too. So a socket is
    closed properly before the next is opened. If that failed, the owner notices the silence and calls `refresh`.
    """

    def __init__(
        self,
        transport: Transport,
        client_id: str,
        hear: Callable[[Event | Preview], None],
        clock: Clock,
        tap: Tap | None = None,
    ) -> None:
        self._clock = clock
        self._tap = tap
        self._transport = transport
        self._client_id = client_id
        self._hear = hear
        self._task: asyncio.Task[None] | None = None
        self._socket: Socket | None = None
        self._open = asyncio.Event()
        self.last_frame_at = 0.0
        self.connections = 0

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep_open(), name=f"listen to {self._transport.address}")

    async def wait_open(self, timeout: float) -> bool:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._open.wait(), timeout)
        return self.is_open

    async def refresh(self) -> None:
        """Replace a socket that is open but silent."""
        socket = self._socket
        if socket is not None and not socket.closed:
            log.info("%s: opening a new websocket, the old one is silent", self._transport.address)
            self._open.clear()
            await _close(socket)
            if self._socket is socket:  # a reader that was busy at the close may wait for ever
                await self.stop()
                self.start()

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end_tasks([task])

    async def _keep_open(self) -> None:
        pause = 0.1
        while True:
            opened_at = self._clock.now()
            try:
                await self._listen_once()
            except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
                log.debug("%s: websocket lost (%s)", self._transport.address, type(error).__name__)
            except Exception:  # no frame may end the listening
                log.exception("listening to %s failed", self._transport.address)
            finally:
                self._open.clear()
                self._socket = None
            pause = 0.1 if self._clock.now() - opened_at > SLOWEST_RECONNECT else min(SLOWEST_RECONNECT, pause * 2)
            limits = self._transport.limits
            await asyncio.sleep(limits.poll_seconds if limits.is_quiet else pause * random.uniform(0.5, 1.0))

    async def _listen_once(self) -> None:
        limits = self._transport.limits
        socket = await self._transport.socket_session.ws_connect(
            self._transport.address.socket(self._client_id),
            heartbeat=limits.socket_ping_seconds,
            max_msg_size=limits.socket_frame_bytes,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
        )
        try:
            self._socket = socket
            await socket.send_json(FEATURES)
            self.connections += 1
            self.last_frame_at = self._clock.now()
            self._open.set()
            async for message in socket:
                read = READERS.get(message.type)
                if read is not None and self._tap is not None:
                    self._tap(message.data)
                frame = read(message.data) if read is not None else None
                if frame is not None:
                    self.last_frame_at = self._clock.now()
                    self._hear(frame)
        finally:
            await _close(socket)


async def _close(socket: Socket) -> None:
    """Close with a time limit, because aiohttp waits again after each frame that still comes."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(socket.close(), 2 * CLOSE_SECONDS)
