"""A TCP proxy that injects faults, in front of any HTTP server. It needs no root.

`async with FaultProxy("127.0.0.1", 8188) as proxy:` and then, say, `proxy.inject(Reset(), on="POST /prompt")`.
Connections pass unharmed until a request matches a rule; what the server answers to that request meets the fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from comfyui_agent.comfy.tasks import end_tasks

REQUEST = re.compile(rb"([A-Z]+ [^ \r\n]+) HTTP/1\.[01]\r\n")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
CHUNK = 65536
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cut(Exception):
    """Resets the connection to the client, from inside a fault."""


class Fault:
    """What happens to a request and to its answer. This one passes everything on."""

    async def request(self) -> None:
        """A matching request is about to be passed on."""

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:  # noqa: ARG002 - others need it
        """What to send instead of a chunk of the answer, of which `passed` bytes went by before."""
        yield chunk


@dataclass(frozen=True)
class Refuse(Fault):
    """Resets before the server hears of the request."""

    async def request(self) -> None:
        raise Cut


@dataclass(frozen=True)
class Late(Fault):
    """Resets the client at once and passes the request on later: a post that its sender believes lost."""

    seconds: float = 0.5


@dataclass(frozen=True)
class Reset(Fault):
    """Lets the request through and resets after so many bytes of the answer."""

    after: int = 0

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:
        yield chunk[: max(0, self.after - passed)]
        if passed + len(chunk) > self.after:
            raise Cut


@dataclass(frozen=True)
class Delay(Fault):
    """Holds back each piece of the answer."""

    seconds: float = 1.0

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:  # noqa: ARG002
        await asyncio.sleep(self.seconds)
        yield chunk


@dataclass(frozen=True)
class Slice(Fault):
    """Passes the answer on in small pieces."""

    size: int = 1
    pause: float = 0.0

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:  # noqa: ARG002
        await asyncio.sleep(self.pause)
        for start in range(0, len(chunk), self.size):
            yield chunk[start : start + self.size]


@dataclass(frozen=True)
class Silence(Fault):
    """Swallows the answer from some byte on; the connection stays open."""

    after: int = 0

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:
        yield chunk[: max(0, self.after - passed)]


@dataclass(frozen=True)
class Garbage(Fault):
    """Replaces the answer by noise, from some byte on."""

    after: int = 0
    seed: int = 0

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:
        kept = max(0, self.after - passed)
        yield chunk[:kept] + random.Random(self.seed + passed).randbytes(max(0, len(chunk) - kept))


@dataclass(frozen=True)
class Loss(Fault):
    """Resets at each piece of an answer with some probability."""

    rate: float = 0.1
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    async def answer(self, chunk: bytes, passed: int) -> AsyncIterator[bytes]:  # noqa: ARG002
        if self.dice.random() < self.rate:
            raise Cut
        yield chunk


@dataclass
class Rule:
    """Which requests meet a fault, and how many of them still will (None: all)."""

    fault: Fault
    on: str
    times: int | None

    def takes(self, request: str) -> bool:
        if self.times == 0 or self.on not in request:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultProxy(contextlib.AbstractAsyncContextManager["FaultProxy"]):
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
            link.fault = Fault()

    def cut_all(self, on: str = "") -> None:
        """Reset the open connections whose last request contains `on`."""
        for link in self._links_on(on):
            link.close(reset=True)

    def silence_all(self, on: str = "") -> None:
        """Keep the open connections whose last request contains `on`, and pass nothing more to the client."""
        for link in self._links_on(on):
            link.fault = Silence()

    def abandon_all(self, on: str = "") -> None:
        """Reset the client's side and keep the server's side open, as when a network vanishes."""
        for link in self._links_on(on):
            link.abandon()

    def bury_abandoned(self) -> None:
        """Close the server's side of abandoned connections."""
        for link in self._links_on(""):
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
        requests = zip(self.moments, self.requests, strict=True)
        return [moment for moment, line in requests if on in line and moment >= after]

    def _links_on(self, on: str) -> Iterator[_Link]:
        return (link for link in list(self._links) if on in link.request)

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await end_tasks(self._tasks)
        await asyncio.sleep(0)  # sockets are closed in the next turn of the loop

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self._is_down:
                raise OSError
            link = _Link(self, (reader, writer), await asyncio.open_connection(*self._target))
            self._links.add(link)
            try:
                await link.run()
            finally:
                self._links.discard(link)
        except OSError:
            _reset(writer)
        except asyncio.CancelledError:  # by the end of the proxy only; a stream server expects none
            _reset(writer)
        finally:
            self._tasks.discard(task)


class _Link:
    def __init__(self, proxy: FaultProxy, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._client_reader, self._client_writer = client
        self._server_reader, self._server_writer = server
        self._passed = 0
        self._has_met = False
        self.fault = Fault()
        self.request = ""
        self.is_abandoned = False

    async def run(self) -> None:
        pumps = [asyncio.create_task(self._pass_requests()), asyncio.create_task(self._pass_answers())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if self.is_abandoned:
                await asyncio.wait(pumps)
        finally:
            await end_tasks(pumps)
            self.close(reset=False)

    def close(self, reset: bool) -> None:
        if reset and not self.is_abandoned:
            _reset(self._client_writer)
        self._client_writer.close()
        self._server_writer.close()

    def abandon(self) -> None:
        self.is_abandoned = True
        _reset(self._client_writer)

    async def _pass_requests(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), self._cutting():
            while chunk := await self._client_reader.read(CHUNK):
                found = REQUEST.match(chunk)
                if found:
                    self.request = found.group(1).decode("latin-1")
                    rule = self._proxy.rule_for(self.request)
                    if rule is not None:
                        chunk = await self._with_body(chunk)
                    self.fault = rule or Fault()
                    self._passed = 0
                    self._has_met = False
                    await self.fault.request()
                if isinstance(self.fault, Late):
                    self._meet()
                    self.abandon()
                    await asyncio.sleep(self.fault.seconds)
                self._server_writer.write(chunk)
                await self._server_writer.drain()

    async def _with_body(self, head: bytes) -> bytes:
        """The begin of a request and its body, if that is small: its sender may be stopped at any moment."""
        size = LENGTH.search(head)
        end = head.find(b"\r\n\r\n") + 4
        missing = int(size[1]) - (len(head) - end) if size and end > 3 else 0
        return head + await self._client_reader.readexactly(missing) if 0 < missing <= CHUNK else head

    async def _pass_answers(self) -> None:
        with contextlib.suppress(OSError), self._cutting():
            while chunk := await self._server_reader.read(CHUNK):
                if self.is_abandoned:
                    continue
                passed, self._passed = self._passed, self._passed + len(chunk)
                async for piece in self.fault.answer(chunk, passed):
                    if piece != chunk or isinstance(self.fault, Delay):
                        self._meet()
                    self._client_writer.write(piece)
                    await self._client_writer.drain()
                    await asyncio.sleep(0)

    @contextlib.contextmanager
    def _cutting(self) -> Iterator[None]:
        try:
            yield
        except Cut:
            self._meet()
            self.close(reset=True)

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
