"""What the fault proxy remembers of the requests that passed it, and what it does to their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from comfyui_agent.lab.fault_proxy import Delay, FaultProxy, Loss, Reset, Silence

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request on a connection with ok."""
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
    server.close()


class Connection:
    """A connection through the proxy that is kept open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, proxy: FaultProxy) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", proxy.port))

    async def ask(self, line: str) -> bytes:
        """What comes back; nothing if the connection was cut."""
        self._writer.write(f"{line} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        try:
            return await asyncio.wait_for(self._reader.readexactly(len(ANSWER)), 5)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def close(self) -> None:
        self._writer.close()


async def ask(proxy: FaultProxy, line: str) -> bytes:
    connection = await Connection.to(proxy)
    try:
        return await connection.ask(line)
    finally:
        connection.close()


async def test_requests_are_remembered_with_their_moments_also_on_one_connection(proxy: FaultProxy) -> None:
    before = time.time()
    connection = await Connection.to(proxy)
    for line in ("POST /prompt", "GET /queue", "POST /prompt"):
        assert await connection.ask(line) == ANSWER
    middle = time.time()
    assert await connection.ask("POST /free") == ANSWER
    connection.close()
    assert proxy.requests == ["POST /prompt", "GET /queue", "POST /prompt", "POST /free"]
    assert len(proxy.when("POST /prompt")) == 2
    assert proxy.moments == sorted(proxy.moments)
    assert before <= proxy.moments[0] <= middle <= proxy.moments[3] <= time.time()
    assert proxy.when("POST", after=middle) == proxy.when("POST /free") == [proxy.moments[3]]
    assert proxy.when("DELETE") == []
    assert proxy.faults_met == 0


async def test_the_faults_that_were_met_are_counted_and_those_that_waited_are_not(proxy: FaultProxy) -> None:
    proxy.inject(Reset(), on="POST /prompt", times=2)
    assert await ask(proxy, "GET /queue") == ANSWER
    assert proxy.faults_met == 0
    answers = [await ask(proxy, "POST /prompt") for _ in range(3)]
    assert answers == [b"", b"", ANSWER]
    assert proxy.faults_met == 2
    proxy.inject(Silence(), on="GET /nothing")
    proxy.heal()
    assert await ask(proxy, "GET /nothing") == ANSWER
    assert proxy.faults_met == 2


async def test_answers_that_were_not_lost_met_no_fault(proxy: FaultProxy) -> None:
    proxy.inject(Loss(rate=0.0), times=None)
    assert await ask(proxy, "GET /queue") == ANSWER
    assert proxy.faults_met == 0


async def test_an_answer_in_so_many_is_lost(proxy: FaultProxy) -> None:
    proxy.inject(Loss(rate=0.5), times=None)
    answers = [await ask(proxy, "GET /queue") for _ in range(40)]
    assert 8 < answers.count(b"") < 32
    assert set(answers) == {b"", ANSWER}


async def test_an_answer_is_held_back_as_long_as_asked(proxy: FaultProxy) -> None:
    proxy.inject(Delay(0.2), on="GET /history/")
    began = time.monotonic()
    assert await ask(proxy, "GET /history/abc") == ANSWER
    assert time.monotonic() - began >= 0.2


async def test_only_connections_of_that_kind_are_cut(proxy: FaultProxy) -> None:
    socket, other = await Connection.to(proxy), await Connection.to(proxy)
    assert (await socket.ask("GET /ws?clientId=x"), await other.ask("GET /queue")) == (ANSWER, ANSWER)
    proxy.cut_all("/ws")
    assert (await socket.ask("GET /ws?clientId=x"), await other.ask("GET /queue")) == (b"", ANSWER)
    socket.close()
    other.close()


async def test_a_target_that_is_gone_resets_and_one_that_is_back_is_reached_again() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy("127.0.0.1", port) as proxy:
        server.close()
        await server.wait_closed()
        assert await ask(proxy, "GET /queue") == b""
        again = await asyncio.start_server(serve, "127.0.0.1", port)
        assert await ask(proxy, "GET /queue") == ANSWER
        again.close()
