"""A TCP proxy that injects faults, in front of any HTTP server. It needs no root.

`async with FaultProxy("127.0.0.1", 8188) as proxy:` and then, say, `proxy.inject(Reset(), on="POST /prompt")`.
Connections pass unharmed until a request matches a rule; what the server answers to that request meets the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import time
from types import TracebackType

from comfyui_agent.lab.faults import Cut, Delay, Fault, Garbage, Late, Loss, Plain, Refuse, Reset, Rule, Silence, Slice

__all__ = [
    "Cut",
    "Delay",
    "Fault",
    "FaultProxy",
    "Garbage",
    "Late",
    "Loss",
    "Plain",
    "Refuse",
    "Reset",
    "Silence",
    "Slice",
]

REQUEST = re.compile(rb"([A-Z]+ [^ \r\n]+) HTTP/1\.[01]\r\n")
CHUNK = 65536


class FaultProxy:
    """Listens on a free port of this machine and passes everything to the target."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._rules: list[Rule] = []
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._is_down = False
        self.port = 0
        self.requests: list[str] = []
        self.moments: list[float] = []
        """When each of them came, in seconds since the epoch."""
        self.faults_met = 0
        """How many requests were really cut, held up or changed."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def inject(self, fault: Fault, on: str = "", times: int | None = 1) -> None:
        """From now on, requests whose first line contains `on` (`POST /prompt`, `/ws`) meet the fault."""
        self._rules.append(Rule(fault, on, times))

    def heal(self) -> None:
        """Take all rules back, for open connections too."""
        self._rules.clear()
        self._is_down = False
        for link in self._links:
            link.fault = None

    def cut_all(self, on: str = "") -> None:
        """Reset the open connections whose last request contains `on`."""
        for link in list(self._links):
            if on in link.request:
                link.close(reset=True)

    def silence_all(self, on: str = "") -> None:
        """Keep the open connections whose last request contains `on`, and pass nothing more to the client."""
        for link in self._links:
            if on in link.request:
                link.fault = Silence()

    def abandon_all(self, on: str = "") -> None:
        """Reset the client's side and keep the server's side open, as when a network vanishes."""
        for link in list(self._links):
            if on in link.request:
                link.abandon()

    def bury_abandoned(self) -> None:
        """Close the server's side of abandoned connections."""
        for link in list(self._links):
            if link.is_abandoned:
                link.close(reset=False)

    def go_down(self) -> None:
        """Reset every connection, open and new, until `heal`."""
        self._is_down = True
        self.cut_all()

    def rule_for(self, request: str) -> Fault | None:
        self.requests.append(request)
        self.moments.append(time.time())
        return next((rule.fault for rule in self._rules if rule.takes(request)), None)

    def when(self, on: str, after: float = 0.0) -> list[float]:
        """When requests whose first line contains `on` came."""
        return [
            moment for moment, line in zip(self.moments, self.requests, strict=True) if on in line and moment >= after
        ]

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.close(reset=True)
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._is_down:
                _reset(writer)
                return
            try:
                target = await asyncio.open_connection(*self._target)
            except OSError:
                _reset(writer)
                return
            link = _Link(self, (reader, writer), target)
            self._links.add(link)
            try:
                await link.run()
            finally:
                self._links.discard(link)
        except asyncio.CancelledError:
            pass  # only the end of the proxy cancels it, and the stream server trips over a cancelled handler
        finally:
            self._tasks.discard(task)


class _Link:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: FaultProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client_reader, self._client_writer = client
        self._server_reader, self._server_writer = server
        self._passed = 0
        self._has_met = False
        self.fault: Fault | None = None
        self.request = ""
        self.is_abandoned = False

    async def run(self) -> None:
        pumps = [asyncio.create_task(self._up()), asyncio.create_task(self._down())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self.is_abandoned:
                await asyncio.wait(pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.close(reset=False)

    def close(self, reset: bool) -> None:
        if reset and not self.is_abandoned:
            _reset(self._client_writer)
        self._client_writer.close()
        self._server_writer.close()

    def abandon(self) -> None:
        self.is_abandoned = True
        _reset(self._client_writer)

    async def _up(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := await self._client_reader.read(CHUNK):
                found = REQUEST.match(chunk)
                if found:
                    self.request = found.group(1).decode("latin-1")
                    self.fault = self._proxy.rule_for(self.request)
                    self._passed = 0
                    self._has_met = False
                try:
                    if found and self.fault is not None:
                        await self.fault.request()
                except Cut:
                    self._meet()
                    self.close(reset=True)
                    return
                if isinstance(self.fault, Late):
                    self._meet()
                    self.abandon()
                    await asyncio.sleep(self.fault.seconds)
                self._server_writer.write(chunk)
                await self._server_writer.drain()

    async def _down(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := await self._server_reader.read(CHUNK):
                if self.is_abandoned:
                    continue
                fault = self.fault or Plain()
                try:
                    pieces = await fault.answer(chunk, self._passed)
                    if pieces != [chunk] or isinstance(fault, Delay):
                        self._meet()
                    self._passed += len(chunk)
                    for piece in pieces:
                        self._client_writer.write(piece)
                        await self._client_writer.drain()
                        if len(pieces) > 1:
                            await asyncio.sleep(0)
                    if isinstance(fault, Reset) and self._passed > fault.after:
                        raise Cut
                except Cut:
                    self._meet()
                    self.close(reset=True)
                    return

    def _meet(self) -> None:
        """Count the current request as hit by its fault, once."""
        self._proxy.faults_met += not self._has_met
        self._has_met = True


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, so that the other side sees an error and not an end."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
