"""Messages as they go over the wire, and where none ever goes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.resolver import ThreadedResolver
from standardwebhooks import Webhook as Verifier

from comfyui_agent.domain.webhooks import Answer, mint_secret
from comfyui_agent.engine import webhook_receiver
from comfyui_agent.engine.webhook_receiver import Receiver

SECRET = mint_secret()
BODY = '{"type":"job.done","data":{"name":"Käse"}}'
HERE = "127.0.0.1"


class Place:
    """An HTTP server that keeps what it is sent and answers as a test says."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes, dict[str, str]]] = []
        self.answer: Callable[[web.Request], Any] = lambda _: web.Response(status=204)
        self.url = ""

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path_qs, await request.read(), dict(request.headers)))
        found = self.answer(request)
        return await found if asyncio.iscoroutine(found) else found  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def place() -> AsyncIterator[Place]:
    found = Place()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HERE, 0)
    await site.start()
    found.url = f"http://{HERE}:{runner.addresses[0][1]}"
    try:
        yield found
    finally:
        await runner.cleanup()


@pytest.fixture
async def program() -> AsyncIterator[Place]:
    async with place() as found:
        yield found


async def send(url: str, *allow: str) -> Answer:
    receiver = Receiver(url, {"secret": SECRET, "allow": list(allow)})
    try:
        return await receiver.send("e3_memory_1_7", BODY)
    finally:
        await receiver.close()


async def test_a_message_is_signed_as_the_standard_says(program: Place) -> None:
    assert await send(f"{program.url}/hooks/e3?token=x", HERE) == Answer(204)
    [(path, body, headers)] = program.requests
    assert (path, body) == ("/hooks/e3?token=x", BODY.encode())
    assert Verifier(SECRET).verify(body, headers)["type"] == "job.done"
    assert {key.lower(): value for key, value in headers.items()}["webhook-id"] == "e3_memory_1_7"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_wherever_it_leads(program: Place, status: int) -> None:
    async with place() as elsewhere:
        program.answer = lambda _: web.Response(status=status, headers={"Location": f"{elsewhere.url}/private"})
        answer = await send(program.url, HERE)
        assert (answer.status, answer.is_success, answer.words) == (
            status,
            False,
            f"it answered HTTP {status}: redirects are not followed",
        )
        assert elsewhere.requests == []


@pytest.mark.parametrize(
    "host", [HERE, "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f000001", "127.1"]
)
async def test_nothing_is_sent_to_this_machine_unless_it_is_allowed_by_this_name(program: Place, host: str) -> None:
    answer = await send(program.url.replace(HERE, host), "another.example")
    assert answer.status is None
    assert "public" in answer.problem or "no address" in answer.problem or "not known" in answer.problem, answer
    assert program.requests == []


async def test_a_name_is_judged_by_the_address_that_is_connected_to_each_time(
    program: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that had a public address, and has a private one now."""
    port = int(program.url.rpartition(":")[2])
    addresses = iter(["192.0.2.1", HERE, "10.0.0.1"])

    async def resolve(_: ThreadedResolver, host: str, port_: int = 0, family: Any = 0) -> list[dict[str, Any]]:
        address = next(addresses)
        return [{"hostname": host, "host": address, "port": port, "family": 2, "proto": 6, "flags": 0}]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    for _ in range(3):
        answer = await send("http://backend.example")
        assert answer.problem == (
            "it cannot be reached: it has no public address: allow its host by name to send there"
        )
    assert program.requests == []
    addresses = iter([HERE])
    assert await send("http://backend.example", "Backend.Example") == Answer(204)


async def test_who_is_slow_or_never_ends_is_given_up_and_what_it_says_is_not_read(
    program: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        await released.wait()
        return web.Response()

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not released.is_set():
                await response.write(b"x" * 65_536)
        return response

    program.answer = flood
    assert await send(program.url, HERE) == Answer(200)
    monkeypatch.setattr(webhook_receiver, "ANSWER_SECONDS", 0.2)
    program.answer = never
    assert await send(program.url, HERE) == Answer(problem="no answer within 0 s")
    released.set()


async def test_what_goes_wrong_is_said_without_the_address(program: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", program.url)
    gone = await send("http://127.0.0.1:9/hunter2", HERE)
    assert gone == Answer(problem="it cannot be reached: Connection refused")
    assert program.requests == [], "proxies of the environment do not count"
    tls = await send(program.url.replace("http", "https") + "/hunter2", HERE)
    assert tls.problem == "its TLS certificate or protocol is not accepted"
