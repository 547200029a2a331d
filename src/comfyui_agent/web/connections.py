"""Connections of the page: bounded, and closed if they say nothing. They share the process with the agent's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
MOST = 1_000
LEAST = 16
SHARE = 4
"""At most one in so many of the files that the process may have open: results are written by it, too."""
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


class Connection(H11Protocol):
    """One connection. One too many is closed at once, and one that does not finish its request head soon after."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._silent: asyncio.TimerHandle | None = None
        if len(self.connections) > most_connections():
            transport.abort()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._silent is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_head()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._forget_head()  # whoever keeps it open is waited for as long as the server keeps connections alive

    def _expect_head(self) -> None:
        self._silent = self.loop.call_later(HEAD_SECONDS, self._close_silent)

    def _forget_head(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    def _close_silent(self) -> None:
        self._silent = None
        if not self.transport.is_closing():
            self.transport.abort()
