"""What one websocket is still to be sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from comfyui_agent.wire.sockets import Client

MOST_FRAMES = 2_000
MOST_PREVIEWS = 4
"""A socket that reads slowly misses previews beyond so many, and is closed beyond so many frames."""


@dataclass(eq=False)
class Outbox:
    """What one socket is still to be sent."""

    client: Client
    has_metadata: bool = False
    """Whether previews come described, and before the step that they show. Plain ones come behind it."""
    held: bytes | None = None
    """A plain preview that waits for its step."""
    _frames: asyncio.Queue[str | bytes | asyncio.Future[None]] = field(default_factory=asyncio.Queue)
    _previews: int = 0

    def put(self, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            if self._previews >= MOST_PREVIEWS:
                return
            self._previews += 1
        if self._frames.qsize() > MOST_FRAMES:
            self.client.abort()  # it connects again, and is told what it missed
        else:
            self._frames.put_nowait(frame)

    def release(self) -> None:
        held, self.held = self.held, None
        if held is not None:
            self.put(held)

    def mark(self) -> asyncio.Future[None]:
        """Done when all that was put before has been sent."""
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frames.put_nowait(sent)
        return sent

    async def send_all(self) -> None:
        try:
            while True:
                frame = await self._frames.get()
                if isinstance(frame, asyncio.Future):
                    if not frame.done():
                        frame.set_result(None)
                elif isinstance(frame, bytes):
                    self._previews -= 1
                    await self.client.socket.send_bytes(frame)
                else:
                    await self.client.socket.send_str(frame)
        except (ConnectionError, RuntimeError):
            self.client.abort()
        finally:
            while not self._frames.empty():
                left = self._frames.get_nowait()
                if isinstance(left, asyncio.Future):
                    left.cancel()
