"""Connections of the page: bounded, and closed if they say or read nothing. They share the process with the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from comfyui_agent.web.listen_address import is_loopback

HEAD_SECONDS = 10.0
SPARE_HEAD_SECONDS = 2.0
LOOK_SECONDS = 2.0
WRITE_SECONDS = 20.0
"""A connection that takes less than LEAST_READ bytes in a look for so long, while there is more to send, is cut."""
LEAST_READ = 4 * 1024
MOST_AHEAD = 8
"""How many requests in a row may be sent before the answer to the one before has been sent."""
MOST = 1_000
LEAST = 16
SHARE = 4
"""At most one in so many of the files that the process may have open: results are written by it, too."""
PER_ADDRESS = 128
MOST_SPARE = 64
"""Connections above the bounds: a probe is answered there, and everything else told what is short."""
SHORTAGE = "e3.shortage"
ENOUGH = 65_536

if os.name == "nt":  # pragma: no cover - it has no such limits

    def raise_limit() -> None:
        """There is nothing to raise."""

    def most_connections() -> int:
        return MOST
else:
    import resource

    def raise_limit() -> None:
        """Let the process have as many files open as it is allowed to: one for every connection, every result."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    def most_connections() -> int:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return MOST if soft == resource.RLIM_INFINITY else max(LEAST, min(MOST, soft // SHARE))


class Places:
    """Who holds a connection. No address holds more than three quarters of all."""

    def __init__(self, is_near: Callable[[str], bool] = is_loopback) -> None:
        """`is_near` knows addresses that many people may stand behind, such as a proxy on this machine."""
        self._is_near = is_near
        self._held: dict[str, dict[Connection, None]] = {}
        self._count = 0
        self._spare: dict[Connection, None] = {}

    def take(self, connection: Connection, address: str) -> str:
        """Give a connection its place; else what is short, and then it has a spare one. One that hangs makes room."""
        own = self._held.get(address, {})
        most = most_connections()
        share = max(LEAST // 2, most * 3 // 4)
        if len(own) >= (share if self._is_near(address) else min(share, PER_ADDRESS)) and not self._cut_one(own):
            return self._lend(connection, f"too many connections from {address}: {len(own)} are open")
        if self._count >= most and not any(self._cut_one(held) for held in list(self._held.values())):
            return self._lend(connection, f"too many connections: {self._count} are open")
        self._held.setdefault(address, {})[connection] = None
        self._count += 1
        return ""

    def leave(self, connection: Connection, address: str) -> None:
        self._spare.pop(connection, None)
        held = self._held.get(address, {})
        if connection in held:
            del held[connection]
            self._count -= 1
            if not held:
                del self._held[address]

    def _cut_one(self, held: dict[Connection, None]) -> bool:
        """Cut a connection whose other side reads nothing; whether there is one."""
        hanging = next((each for each in held if each.is_hanging), None)
        if hanging is not None:
            hanging.cut()
        return hanging is not None

    def _lend(self, connection: Connection, words: str) -> str:
        self._spare[connection] = None
        if len(self._spare) > MOST_SPARE:
            next(iter(self._spare)).cut()
        return words


class Connection(H11Protocol):
    """One connection. It is cut if it does not finish its request head, or does not read what is sent."""

    def __init__(self, *given: Any, places: Places, **named: Any) -> None:
        super().__init__(*given, **named)
        self._places = places
        self._address = ""
        self._shortage = ""
        self._ahead = 0
        self._silent: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._unread = 0
        self._hanging_looks = 0

    @property
    def is_hanging(self) -> bool:
        """Whether there is something to send, and the other side took nothing of it since the last look."""
        return self._hanging_looks > 0

    def cut(self) -> None:
        """End it at once; what was not sent is thrown away."""
        self._places.leave(self, self._address)
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # so that it is told as soon as the other side does not read
        self._address = self.client[0] if self.client else ""
        self._shortage = self._places.take(self, self._address)
        if self._shortage:
            self.app_state = {**self.app_state, SHORTAGE: self._shortage}
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._silent is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._places.leave(self, self._address)
        self._forget_head()
        self._stop_looking()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._ahead = self._ahead + 1 if self.conn.trailing_data[0] else 0
        if self._shortage or self._ahead > MOST_AHEAD:
            self.transport.close()
        super().on_response_complete()
        self._forget_head()  # whoever keeps it open is waited for as long as the server keeps connections alive

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._looking is None:
            self._unread = self._hanging_looks = 0
            self._looking = self.loop.call_later(LOOK_SECONDS, self._look)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_looking()

    def _look(self) -> None:
        """How much was read since the last look. The first sees how much there is."""
        unread = self.transport.get_write_buffer_size()
        is_reading = not self._unread or self._unread - unread >= LEAST_READ
        self._hanging_looks = 0 if is_reading else self._hanging_looks + 1
        self._unread = unread
        if self._hanging_looks * LOOK_SECONDS >= WRITE_SECONDS:
            self.cut()
        else:
            self._looking = self.loop.call_later(LOOK_SECONDS, self._look)

    def _stop_looking(self) -> None:
        self._hanging_looks = 0
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def _expect_head(self) -> None:
        self._silent = self.loop.call_later(SPARE_HEAD_SECONDS if self._shortage else HEAD_SECONDS, self._close_silent)

    def _forget_head(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def _close_silent(self) -> None:
        self._silent = None
        if not self.transport.is_closing():
            self.cut()
