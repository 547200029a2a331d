"""HTTP connections of the page: limited in number, and cut when the client sends or reads nothing.

The page shares its process with the agent, so that idle connections must not use up its files and memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from comfyui_agent.access.listen_address import is_loopback

HEAD_SECONDS = 10.0
SPARE_HEAD_SECONDS = 2.0
LOOK_SECONDS = 2.0
WRITE_SECONDS = 20.0
"""A connection that reads less than LEAST_READ bytes per look for this long, while there is more to send, is cut."""
LEAST_READ = 4 * 1024
MOST_AHEAD = 8
"""How many requests in a row may arrive before the previous one is answered (pipelining)."""
MOST = 1_000
LEAST = 16
SHARE = 4
"""Connections take at most one part in this many of the process's open files. The agent writes results, too."""
PER_ADDRESS = 128
MOST_SPARE = 64
"""Connections above the limits. There probes are answered, and other requests are told what is short."""
SHORTAGE = "e3.shortage"
ENOUGH = 65_536


def raise_limit() -> None:
    """Raise the process's limit of open files as far as it is allowed. Windows has none."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    try:
        import resource
    except ImportError:  # pragma: no cover - Windows
        return MOST
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else max(LEAST, min(MOST, soft // SHARE))


class ConnectionLimits:
    """Counts open connections, in all and by address. No address gets more than three quarters of all."""

    def __init__(self, is_shared: Callable[[str], bool] = is_loopback) -> None:
        """`is_shared` tells addresses behind which many people may be, such as a proxy on this machine."""
        self._is_shared = is_shared
        self._open: dict[Connection, str] = {}
        self._spare: dict[Connection, None] = {}

    def add(self, connection: Connection, address: str) -> str:
        """Count a connection. Returns what is short if it is above the limits; a hanging one is cut to make room."""
        own = [each for each, known in self._open.items() if known == address]
        most = most_connections()
        share = max(LEAST // 2, most * 3 // 4)
        if len(own) >= (share if self._is_shared(address) else min(share, PER_ADDRESS)) and not _cut_hanging(own):
            return self._add_spare(connection, f"too many connections from {address}: {len(own)} are open")
        if len(self._open) >= most and not _cut_hanging(self._open):
            return self._add_spare(connection, f"too many connections: {len(self._open)} are open")
        self._open[connection] = address
        return ""

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._spare.pop(connection, None)

    def _add_spare(self, connection: Connection, shortage: str) -> str:
        self._spare[connection] = None
        if len(self._spare) > MOST_SPARE:
            next(iter(self._spare)).cut()
        return shortage


def _cut_hanging(connections: Iterable[Connection]) -> bool:
    """Cut one connection whose client reads nothing. Returns whether there was one."""
    hanging = next((each for each in connections if each.hanging_looks), None)
    if hanging is not None:
        hanging.cut()
    return hanging is not None


class Connection(H11Protocol):
    """A connection that is cut if its client does not finish a request head, or does not read the answer."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._shortage = ""
        self._ahead = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self.hanging_looks = 0
        """Looks in a row at which the client had read nothing, though there was something to read."""

    def cut(self) -> None:
        """Close at once and drop what was not sent."""
        self._limits.remove(self)
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # so that pause_writing comes as soon as the client lags
        self._shortage = self._limits.add(self, self.client[0] if self.client else "")
        if self._shortage:
            self.app_state = {**self.app_state, SHORTAGE: self._shortage}
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_head_timer()
        elif self._head_timer is None:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.remove(self)
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._ahead = self._ahead + 1 if self.conn.trailing_data[0] else 0
        if self._shortage or self._ahead > MOST_AHEAD:
            self.transport.close()
        super().on_response_complete()
        self._stop_head_timer()  # from here on the keep-alive timeout of the server counts

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_timer is None:
            self._unread = self.hanging_looks = 0
            self._read_timer = self.loop.call_later(LOOK_SECONDS, self._check_reading)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_read_timer()

    def _check_reading(self) -> None:
        """Compare what is unread with the last look. The first look only measures."""
        unread = self.transport.get_write_buffer_size()
        is_reading = not self._unread or self._unread - unread >= LEAST_READ
        self.hanging_looks = 0 if is_reading else self.hanging_looks + 1
        self._unread = unread
        if self.hanging_looks * LOOK_SECONDS >= WRITE_SECONDS:
            self.cut()
        else:
            self._read_timer = self.loop.call_later(LOOK_SECONDS, self._check_reading)

    def _stop_read_timer(self) -> None:
        self.hanging_looks = 0
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _start_head_timer(self) -> None:
        seconds = SPARE_HEAD_SECONDS if self._shortage else HEAD_SECONDS
        self._head_timer = self.loop.call_later(seconds, self._cut_silent)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cut_silent(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.cut()
