"""What every request passes first."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from comfyui_agent.access.gate import Caller
from comfyui_agent.access.limits import OPEN_FACTOR, RequestLimits
from comfyui_agent.access.origins import check_origin
from comfyui_agent.access.problem import Problem
from comfyui_agent.access.proxies import Proxies
from comfyui_agent.config.settings import Ui
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store.errors import DatabaseAway
from comfyui_agent.web import guard
from comfyui_agent.web.guard import (
    FORMS,
    HEADERS,
    LARGE_AT_ONCE,
    LARGE_PER_CALLER,
    LARGEST_BODY,
    LARGEST_FORM,
    SMALL_BODY,
    Guard,
)
from comfyui_agent.web.request_body import RequestBody

JSON = Headers({"content-type": "application/json"})


class Gate:
    """Open, closed, or not to be found out."""

    role = Role.ADMIN
    proxies = Proxies(Ui())

    def __init__(self, is_open: bool = True, error: Exception | None = None) -> None:
        self._is_open = is_open
        self._error = error

    async def is_open(self) -> bool:
        if self._error is not None:
            raise self._error
        return self._is_open

    async def admit(self, request: Request) -> Caller:
        if not await self.is_open():
            raise Problem(401, "this needs a token")
        return Caller(self.role, address=request.headers.get("x-from", ""))


class Behind:
    """The application behind the guard: it says what it was sent."""

    def __init__(self, error: Exception | None = None, begins: bool = True) -> None:
        self.bodies: list[bytes] = []
        self._error = error
        self._begins = begins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in guard.UNSAFE:
            self.bodies.append((await receive())["body"])
        if self._begins:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"private")]})
        if self._error is not None:
            raise self._error
        await send({"type": "http.response.body", "body": b"fine"})


async def asked(
    app: Any,
    method: str = "GET",
    path: str = "/",
    parts: tuple[bytes, ...] = (b"",),
    gate: Any = None,
    scheme: str = "http",
    is_gone: bool = False,
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """One request through the guard, its body in parts; the caller may be gone once it was sent."""
    lines = {"host": "127.0.0.1:8190", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "scheme": scheme,
        "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
    }
    waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    waiting[-1]["more_body"] = False
    sent: list[Message] = []

    async def receive() -> Message:
        if is_gone and not waiting:
            return {"type": "http.disconnect"}
        return waiting.pop(0) if waiting else await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    await Guard(app, gate or Gate(), RequestLimits(Ui()))(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent)


async def test_an_answer_carries_the_headers_and_may_say_its_own() -> None:
    status, headers, body = await asked(Behind())
    assert (status, body) == (200, b"fine")
    assert headers.pop("cache-control") == "private"
    assert headers == {name: value for name, value in HEADERS.items() if name != "cache-control"}


async def test_a_body_that_came_in_parts_is_handed_on_whole() -> None:
    behind = Behind()
    said = json.dumps({"a": "é" * 10}).encode()
    parts = tuple(said[start : start + 7] for start in range(0, len(said), 7))
    status, _, _ = await asked(behind, "POST", "/api", parts, content_type="application/json; charset=utf-8")
    assert (status, behind.bodies) == (200, [said])


@pytest.mark.parametrize("sizes", [(LARGEST_BODY + 1,), (LARGEST_BODY // 2, LARGEST_BODY // 2, 1)])
async def test_a_body_that_is_too_large_is_refused_however_it_comes(sizes: tuple[int, ...]) -> None:
    behind = Behind()
    parts = tuple(b" " * size for size in sizes)
    status, headers, _ = await asked(behind, "POST", "/api", parts, content_type="application/json")
    assert (status, behind.bodies, headers["connection"]) == (413, [], "close")


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost:1", "[::1]:8190"])
async def test_the_names_of_this_machine_are_answered_while_there_are_no_tokens(name: str) -> None:
    assert (await asked(Behind(), host=name))[0] == 200


@pytest.mark.parametrize("name", ["", "evil.example:8190", "127.0.0.1.evil.example", "192.168.0.7", "["])
async def test_another_name_is_refused_while_there_are_no_tokens_and_answered_with_them(name: str) -> None:
    status, headers, body = await asked(Behind(), host=name)
    assert (status, headers["x-frame-options"]) == (403, "DENY")
    assert b"own address" in body
    assert (await asked(Behind(), gate=Gate(is_open=False), host=name))[0] == 200
    assert (await asked(Behind(), path="/healthz", host=name))[0] == 200


async def test_a_fault_behind_the_guard_is_a_problem_without_its_words_unless_the_answer_has_begun() -> None:
    status, headers, body = await asked(Behind(ZeroDivisionError("secret"), begins=False))
    assert (status, headers["x-frame-options"]) == (500, "DENY")
    assert b"secret" not in body
    status, _, body = await asked(Behind(ZeroDivisionError("secret")))
    assert (status, body) == (200, b"")


async def test_tokens_that_cannot_be_read_are_a_problem_that_passes() -> None:
    status, headers, _ = await asked(Behind(), gate=Gate(error=DatabaseAway("the database is locked")))
    assert (status, headers["retry-after"]) == (503, "2")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://e3:8190"},
        {"origin": "HTTP://E3:8190"},
        {"origin": "https://e3:8190"},
        {"sec-fetch-site": "same-origin", "origin": "http://e3:8190"},
        {"sec-fetch-site": "none"},
    ],
)
def test_the_page_itself_and_programs_may_ask_for_changes(headers: dict[str, str]) -> None:
    check_origin(Headers({"host": "e3:8190", **headers}))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://e3:8191"},
        {"origin": "http://e3"},
        {"origin": "http://evil.e3:8190"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "e3:8190"},
        {"origin": "null", "host": ""},
        {"origin": "", "host": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": ""},
        {"sec-fetch-site": "cross-site", "origin": "http://e3:8190"},
    ],
)
def test_a_page_of_another_site_may_not(headers: dict[str, str]) -> None:
    with pytest.raises(Problem) as refused:
        check_origin(Headers({"host": "e3:8190", **headers}))
    assert refused.value.status == 403


async def test_a_form_is_no_json_and_small() -> None:
    behind = Behind()
    for path in FORMS:
        status, _, _ = await asked(behind, "POST", path, (b"token=x",), gate=Gate(is_open=False))
        assert status == 200
        status, _, _ = await asked(behind, "POST", path, (b"token=", b"x" * LARGEST_FORM), gate=Gate(is_open=False))
        assert status == 413
    assert behind.bodies == [b"token=x"] * len(FORMS)


@pytest.mark.parametrize(("is_open", "status"), [(False, 401), (True, 429)])
async def test_the_body_of_a_refused_caller_is_not_read(is_open: bool, status: int) -> None:
    async def never() -> Message:
        raise AssertionError("it was read")

    gate: Any = Gate(is_open)
    limits = RequestLimits(Ui(changes_per_minute=1))
    for _ in range(OPEN_FACTOR):
        limits.count("changes", Caller(Role.ADMIN))
    scope = {"type": "http", "path": "/api", "headers": []}
    with pytest.raises(Problem) as refused:
        await Guard(Behind(), gate, limits)._read(scope, Headers({}), RequestBody(Headers({}), never))
    assert refused.value.status == status


@pytest.mark.parametrize(
    ("role", "status"), [(Role.METRICS, 403), (Role.READ, 403), (Role.USER, 200), (Role.ADMIN, 200)]
)
async def test_a_reader_can_send_nothing(role: Role, status: int) -> None:
    behind, gate = Behind(), Gate()
    gate.role = role
    answer = await asked(behind, "POST", "/api", (b"{}",), gate=gate, content_type="application/json")
    assert (answer[0], len(behind.bodies)) == (status, status == 200)


async def test_a_browser_that_came_by_tls_is_told_to_stay_with_it() -> None:
    assert "strict-transport-security" not in (await asked(Behind()))[1]
    assert (await asked(Behind(), scheme="https"))[1]["strict-transport-security"] == "max-age=31536000"


class Senders:
    """Callers whose large bodies have begun to come; the rest comes when it may."""

    def __init__(self) -> None:
        self.guard = Guard(Behind(), Gate(), RequestLimits(Ui()))  # type: ignore[arg-type]
        self.held = 0
        self.may = asyncio.Event()

    def send(self, who: str, first: bytes = b"", size: str = str(SMALL_BODY + 1)) -> asyncio.Task[bytes]:
        parts = [b"{}", first] if first else [b"{}"]

        async def receive() -> Message:
            if len(parts) == 1:
                self.held += 1
                await self.may.wait()
            return {"type": "http.request", "body": parts.pop(), "more_body": bool(parts)} if parts else await never()

        headers = {"x-from": who, **dict(JSON)} | ({"content-length": size} if size else {})
        scope = {"type": "http", "path": "/api", "headers": [(b"x-from", who.encode())]}
        read = self.guard._read(scope, Headers(headers), RequestBody(Headers(headers), receive))
        return asyncio.ensure_future(read)


async def never() -> Message:
    return await asyncio.Future()


async def test_only_so_many_large_bodies_are_held_at_once_and_not_all_of_one_caller() -> None:
    senders = Senders()
    sending = [senders.send("a") for _ in range(6)]
    await asyncio.sleep(0.05)
    assert senders.held == LARGE_PER_CALLER
    sending += [senders.send(who, first) for who in "bc" for first in (b"", b" " * (SMALL_BODY + 1))]
    await asyncio.sleep(0.05)
    assert senders.held == LARGE_AT_ONCE
    senders.may.set()
    await asyncio.gather(*sending)


async def test_a_large_body_waits_so_long_for_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LARGE_PATIENCE", 0.02)
    senders = Senders()
    held = [senders.send(who) for who in "aabb"]
    await asyncio.sleep(0)
    with pytest.raises(Problem, match="too many large requests") as refused:
        await senders.send("c")
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "5"})
    for each in held:
        each.cancel()


async def test_a_body_that_does_not_say_its_size_is_small_until_more_has_come() -> None:
    senders = Senders()
    held = [senders.send(who) for who in "aabb"]
    await asyncio.sleep(0.05)
    parts = [{"type": "http.request", "body": b"{}"}]
    scope = {"type": "http", "path": "/api", "headers": []}

    async def receive() -> Message:
        return parts.pop()

    headers = Headers(dict(JSON))
    reading = senders.guard._read(scope, headers, RequestBody(headers, receive))
    assert await asyncio.wait_for(reading, 1) == b"{}"
    for each in held:
        each.cancel()


async def test_a_large_body_of_who_is_gone_is_not_read() -> None:
    app, body = Behind(), b'"' + b"x" * guard.SMALL_BODY + b'"'
    status, _, _ = await asked(app, "POST", parts=(body,), is_gone=True, content_length=str(len(body)), **dict(JSON))
    assert (status, app.bodies) == (400, [])
    status, _, _ = await asked(app, "POST", parts=(body,), content_length=str(len(body)), **dict(JSON))
    assert (status, app.bodies) == (200, [body])


async def test_reading_large_bodies_takes_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is handed on at once; the second waits until others have had their time."""
    monkeypatch.setattr(guard, "check_json", lambda *_: time.sleep(0.02))
    ours = Guard(Behind(), Gate(), RequestLimits(Ui()))  # type: ignore[arg-type]
    scope = {"type": "http", "path": "/api", "headers": []}

    async def handed_on() -> float:
        parts = [{"type": "http.request", "body": b" " * (SMALL_BODY + 1)}]

        async def receive() -> Message:
            return parts.pop() if parts else await asyncio.Future()

        await ours._read(scope, JSON, RequestBody(JSON, receive))
        return time.monotonic()

    first, second = await asyncio.gather(handed_on(), handed_on())
    assert second - first >= 0.02 * guard.PARSING_SHARE * 0.9
