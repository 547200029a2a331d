"""Messages of custom nodes, which the editor sends over a websocket to the client that asked for them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from functools import partial

from comfyui_agent.clock import Clock
from comfyui_agent.comfy.address import NoServer
from comfyui_agent.comfy.listener import Listener
from comfyui_agent.comfy.tasks import BackgroundTasks
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.wire.frames import PREVIEW, PREVIEW_WITH_METADATA
from comfyui_agent.wire.prompts import Json
from comfyui_agent.wire.sockets import Client, Delivery

log = logging.getLogger(__name__)

OWN_EVENT = re.compile(r'\{\s*"type":\s*"(status|feature_flags|execut(ing|ed)|execution_\w+|progress|progress_state)"')
"""Messages of ComfyUI itself, which the gateway sends about its own prompts."""
MOST_SOCKETS = 200


class EditorSockets:
    """Opens a websocket to the editor for each client of another delivery, under the client's id.

    `send` gets the frames that are not ComfyUI's own. A server forgets the newer of two sockets of one id when the
    older one ends, so one is closed before the next is opened.
    """

    def __init__(
        self,
        delivery: Delivery,
        transport: Callable[[], Transport],
        send: Callable[[str, str | bytes], None],
        clock: Clock,
    ) -> None:
        self._delivery = delivery
        self._transport = transport
        self._send = send
        self._clock = clock
        self._clients: Counter[str] = Counter()
        self._listeners: dict[str, Listener] = {}
        self._changing: set[str] = set()
        self._tasks = BackgroundTasks("a websocket to the editor")

    async def close(self) -> None:
        await self._tasks.stop()
        for listener in self._listeners.values():
            await listener.stop()

    def join(self, client: Client) -> None:
        self._delivery.join(client)
        self._count(client.sid, 1)

    def leave(self, client: Client) -> None:
        self._delivery.leave(client)
        self._count(client.sid, -1)

    def negotiate(self, client: Client, flags: Json) -> None:
        self._delivery.negotiate(client, flags)

    async def reply(self, client: Client, event: str, data: Json) -> None:
        await self._delivery.reply(client, event, data)

    def _count(self, client_id: str, difference: int) -> None:
        self._clients[client_id] += difference
        if client_id not in self._changing:
            self._changing.add(client_id)
            self._tasks.start(self._follow(client_id))

    async def _follow(self, client_id: str) -> None:
        """Open or close the socket of an id, until it is as its clients want it."""
        try:
            while (self._clients[client_id] > 0) is not (client_id in self._listeners):
                if client_id in self._listeners:
                    await self._listeners.pop(client_id).stop()
                elif not self._open(client_id):
                    break
        finally:
            self._changing.discard(client_id)
            self._clients += Counter()  # forget those who have left

    def _open(self, client_id: str) -> bool:
        """Whether a socket of this id could be opened. It connects, and connects again, by itself."""
        if len(self._listeners) >= MOST_SOCKETS:
            log.info("more than %d clients: some do not hear of custom nodes", MOST_SOCKETS)
            return False
        try:
            transport = self._transport()
        except NoServer:
            return False
        tap = partial(self._hear, client_id)
        listener = self._listeners[client_id] = Listener(transport, client_id, lambda _: None, self._clock, tap)
        listener.start()
        return True

    def _hear(self, client_id: str, frame: str | bytes) -> None:
        if not _is_own(frame):
            self._send(client_id, frame)


def _is_own(frame: str | bytes) -> bool:
    if isinstance(frame, str):
        return OWN_EVENT.match(frame) is not None
    return int.from_bytes(frame[:4], "big") in (PREVIEW, PREVIEW_WITH_METADATA)
