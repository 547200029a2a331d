"""A server whose every answer is scripted, byte by byte: the parts of ComfyUI by default, any nonsense where told.

A reply is a function that writes whatever it likes to the connection. One connection carries one question.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.domain.failures import FailureClass

Writer: TypeAlias = asyncio.StreamWriter
Reply: TypeAlias = "Callable[[Question, Writer], Awaitable[None]]"

USER, PASSWORD, TOKEN = "artist", "hunter2-password", "abcdef-token"
BLOCK = b"x" * 65536
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9


@dataclass(frozen=True)
class Question:
    """What a client asked."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def route(self) -> str:
        """The method and the first part of the path: `GET /history`."""
        return f"{self.method} /{self.path.strip('/').split('/')[0]}"


@dataclass
class HostileServer:
    """Answers each route with its reply; `questions` is all that it was asked."""

    port: int
    replies: dict[str, Reply] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    frames: Callable[[Writer], Awaitable[None]] | None = None
    _arrival: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The address as it may be shown."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address as a user gives it, with secrets."""
        return f"http://{USER}:{PASSWORD}@127.0.0.1:{self.port}/?token={TOKEN}"

    def asked(self, route: str) -> int:
        return sum(question.route == route for question in self.questions)

    async def until_asked(self, route: str, times: int = 1) -> None:
        """Wait until a route was asked for so many more times."""
        wanted = self.asked(route) + times
        while self.asked(route) < wanted:
            self._arrival.clear()
            await self._arrival.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            question = await _read_question(reader)
            self.questions.append(question)
            self._arrival.set()
            if question.route == "GET /ws" and question.route not in self.replies:
                await self._websocket(question, writer)
            else:
                await self.replies.get(question.route, answer(b"no such route", status=404))(question, writer)
        with suppress(ConnectionError):
            writer.close()

    async def _websocket(self, question: Question, writer: Writer) -> None:
        await accept_websocket(question, writer)
        if self.frames is not None:
            await self.frames(writer)
        await asyncio.Event().wait()


async def _read_question(reader: asyncio.StreamReader) -> Question:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while (size := int(await reader.readline(), 16)) > 0:
            body += (await reader.readexactly(size + 2))[:-2]
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Question(method, parts.path, parse_qs(parts.query), headers, body)


@asynccontextmanager
async def hostile_server() -> AsyncIterator[HostileServer]:
    """A server on a free port, which knows no route until it is told."""
    connections: set[asyncio.Task[None]] = set()
    state = HostileServer(0)

    async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        task.add_done_callback(connections.discard)
        await state.serve(reader, writer)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    state.port = listening.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        listening.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def answer(
    body: bytes | str = b"",
    *,
    status: int = 200,
    length: int | None = None,
    kind: str = "application/json",
    headers: tuple[str, ...] = (),
) -> Reply:
    """One answer; `length` is the Content-Length that it claims, the true one unless told."""
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(content) if length is None else length}"]
    lines += [f"Content-Type: {kind}", "Connection: close", *headers]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def reply(question: Question, writer: Writer) -> None:
        writer.write(head if question.method == "HEAD" else head + content)
        await writer.drain()

    return reply


def says(document: Any, *, status: int = 200) -> Reply:
    return answer(json.dumps(document), status=status)


def raw(content: bytes) -> Reply:
    """These bytes, and the end of the connection."""

    async def reply(_: Question, writer: Writer) -> None:
        writer.write(content)
        await writer.drain()

    return reply


def in_turn(*replies: Reply) -> Reply:
    """One reply after the other; the last one for good."""
    left = list(replies)

    async def reply(question: Question, writer: Writer) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(question, writer)

    return reply


async def never(_: Question, __: Writer) -> None:
    """Take the question and say nothing, for ever."""
    await asyncio.Event().wait()


async def reset(_: Question, writer: Writer) -> None:
    """Cut the connection as a crash would."""
    transport = writer.transport
    sock = transport.get_extra_info("socket")
    sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER: close with RST
    transport.abort()


def endless(head: bytes, block: bytes = BLOCK, pause: float = 0.0) -> Reply:
    """This head, and then this block again and again."""

    async def reply(_: Question, writer: Writer) -> None:
        writer.write(head)
        while True:
            writer.write(block)
            await writer.drain()
            await asyncio.sleep(pause)

    return reply


async def accept_websocket(question: Question, writer: Writer) -> None:
    key = question.headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key).digest())
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
    writer.write(b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    await writer.drain()


def frame(content: bytes | str, kind: int = TEXT, *, length: int | None = None) -> bytes:
    """A websocket frame; `length` is what it claims to hold."""
    body = content.encode() if isinstance(content, str) else content
    size = len(body) if length is None else length
    head = bytes([0x80 | kind])
    if size < 126:
        return head + bytes([size]) + body
    if size < 65536:
        return head + b"\x7e" + struct.pack(">H", size) + body
    return head + b"\x7f" + struct.pack(">Q", size) + body


def event(kind: str, **data: Any) -> bytes:
    return frame(json.dumps({"type": kind, "data": data}))


def frames(*content: bytes) -> Callable[[Writer], Awaitable[None]]:
    """Send these, and keep the socket open."""

    async def send(writer: Writer) -> None:
        for one in content:
            writer.write(one)
        await writer.drain()

    return send


def endless_frames(content: bytes) -> Callable[[Writer], Awaitable[None]]:
    async def send(writer: Writer) -> None:
        while True:
            writer.write(content)
            await writer.drain()
            await asyncio.sleep(0)

    return send


def assert_clear(error: BaseException, server: HostileServer) -> None:
    """An error that a person can read: its class, one line, the server's name, and no secret anywhere in it."""
    assert isinstance(error, ComfyError), repr(error)
    assert error.kind in FailureClass
    assert server.name in error.message
    assert_one_line(error.message)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.failure(server.name))
    assert_no_secret(shown)


def assert_one_line(message: str) -> None:
    assert message
    assert len(message) < 3_000
    assert message.isprintable(), repr(message)


def assert_no_secret(text: str) -> None:
    assert PASSWORD not in text
    assert TOKEN not in text
    assert base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode() not in text


async def side_by_side(checks: Iterable[Awaitable[None]], at_once: int = 6) -> None:
    """Checks that mostly wait, a few of them at a time."""
    turns = asyncio.Semaphore(at_once)

    async def take_turn(check: Awaitable[None]) -> None:
        async with turns:
            await check

    await asyncio.gather(*map(take_turn, checks))
