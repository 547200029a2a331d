"""What every request passes first: who may ask from where, how much, and what every answer carries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from comfyui_agent.domain.texts import is_whole
from comfyui_agent.domain.tokens import Role
from comfyui_agent.store.errors import StoreError
from comfyui_agent.web.access import Gate, check_role
from comfyui_agent.web.connections import SHORTAGE
from comfyui_agent.web.fair_turns import TimeShare, Turns
from comfyui_agent.web.limits import RequestLimits
from comfyui_agent.web.problems import Problem, ended_early, from_store, short_of, shown
from comfyui_agent.web.proxies import check_direct
from comfyui_agent.web.threads import REQUESTS

log = logging.getLogger(__name__)

LARGEST_BODY = 4 * 1024 * 1024
SMALL_BODY = 64 * 1024
LARGEST_FORM = 4 * 1024
LARGE_AT_ONCE = 4
LARGE_EACH = 2
LARGE_PATIENCE = 5.0
SILENT_SECONDS = 5.0
LEAST_RATE = 10 * 1024
"""Bytes a second of a large body, from SILENT_SECONDS on."""
MOST_VALUES = 250_000
MOST_CONTAINERS = 20_000
"""Lists and objects. A page of a book is an object; making so many takes the event loop about 50 ms."""
MOST_KEYS = 1_000
PARSING_SHARE = 8
"""At most one part in so many of the time goes into reading large bodies."""
ESCAPED = "\\u"
DEEPEST = 60
BODY_SECONDS = 30.0
LINGER_SECONDS = 1.0
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
SAME = frozenset({"same-origin", "none"})
FORMS = ("/login", "/logout")
"""Plain forms, so that they work without scripts; everything else that is sent is JSON."""
PROBES = ("/healthz", "/readyz")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self'; "
    "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}

HSTS = {"strict-transport-security": "max-age=31536000"}


class Guard:
    """Refuses what came from elsewhere while no token is needed, cross-site changes, and bodies that are too large or
    no JSON."""

    def __init__(self, app: ASGIApp, gate: Gate, limits: RequestLimits | None = None) -> None:
        self._app = app
        self._gate = gate
        self._limits = limits
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._large_each = Turns(LARGE_EACH)
        self._parsing = TimeShare(PARSING_SHARE)
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass. Those that only look wait for their turn, because any number can be asked at once."""
        if scope["type"] != "http":
            return
        is_tls = scope.get("scheme") == "https"
        if scope["path"] in PROBES or scope["method"] in UNSAFE:
            await self._pass(scope, receive, _Sending(send, is_tls=is_tls))
            return
        async with self._turns.turn(self._gate.proxies.client_of(Request(scope))) as turn:
            await self._pass(scope, receive, _Sending(send, turn.end, is_tls=is_tls))

    async def _pass(self, scope: Scope, receive: Receive, sending: _Sending) -> None:
        receiving = _Receiving(receive)
        receive = receiving
        try:
            shortage = scope.get("state", {}).get(SHORTAGE)
            if shortage and scope["path"] not in PROBES:
                raise short_of(shortage, "Close some, or try again in 5 s.")
            headers = Headers(scope=scope)
            if scope["path"] not in PROBES and await self._gate.is_open():  # probes answer even without a database
                check_direct(headers)
            if scope["method"] in UNSAFE:
                check_origin(headers)
                receive = _replay(await self._body(scope, headers, receive), receive)
            await self._app(scope, receive, sending)
            return
        except Problem as error:
            problem = error
        except StoreError as error:  # the tokens could not be read
            problem = from_store(error)
        except Exception as error:
            log.error("%s %.200s failed", scope["method"], scope["path"], exc_info=error)
            problem = Problem(500, f"{type(error).__name__} while answering")
        if not sending.has_begun:
            await receiving.throw_away()
            await shown(Request(scope), problem)(scope, receive, sending)

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
        """What was sent, once it is known who sent it. A large one waits for its turn, and is looked at beside."""
        coming = _Body(headers, receive)
        if scope["path"] in FORMS:
            return await coming.whole(LARGEST_FORM)
        caller = await self._gate.admit(Request(scope))
        check_role(caller, Role.USER)
        if self._limits is not None:
            self._limits.count_change(caller)
        if await coming.fits(SMALL_BODY):
            body = await coming.whole(SMALL_BODY)
            check_json(headers, body)
            return body
        async with self._large_turn(caller.address if caller.token is None else caller.scope):
            body = await coming.whole(LARGEST_BODY, keeps_coming=True)
            async with self._parsing.turn():
                if await _is_gone(receive):
                    raise ended_early()
                await REQUESTS.run(check_json, headers, body)
            return body

    @contextlib.asynccontextmanager
    async def _large_turn(self, who: str) -> AsyncIterator[None]:
        """Only a few large bodies are held at once, and not all of them are of one caller."""
        async with contextlib.AsyncExitStack() as places:

            async def take() -> None:
                await places.enter_async_context(self._large_each.turn(who))
                await places.enter_async_context(self._large)

            try:
                await asyncio.wait_for(take(), LARGE_PATIENCE)
            except asyncio.TimeoutError:
                raise short_of(f"too many large requests: this one had no turn for {LARGE_PATIENCE:.0f} s") from None
            yield


def check_origin(headers: Headers) -> None:
    """A change is asked for by this page itself, or by a program that is no browser; never by another site."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site")
    is_ours = origin is None or _place_of(origin) == headers.get("host", "").lower()
    if not is_ours or (site is not None and site not in SAME):
        raise Problem(403, "a page of another site asked for this change", "Do it in E3's own page, or by the API.")


def _place_of(origin: str) -> str | None:
    """Name and port of an origin; None for one that hides where it comes from."""
    return origin.partition("://")[2].lower() or None


class _Body:
    """What is sent, as it comes."""

    def __init__(self, headers: Headers, receive: Receive) -> None:
        said = headers.get("content-length", "")
        self._announced = int(said) if said.isdigit() else 0
        self._receive = receive
        self._parts: list[bytes] = []
        self._size = 0
        self._is_whole = False

    async def whole(self, largest: int, *, keeps_coming: bool = False) -> bytes:
        """All of it. Problem if it is larger, or takes too long; one that shall keep coming may not pause for long."""
        if not await self.fits(largest, keeps_coming=keeps_coming):
            raise _too_large(largest)
        whole, self._parts = b"".join(self._parts), []  # a large one is not held twice
        return whole

    async def fits(self, largest: int, *, keeps_coming: bool = False) -> bool:
        """Read until all has come, or more than this; which of both. What was read is kept."""
        began, before = time.monotonic(), self._size
        while not self._is_whole and max(self._announced, self._size) <= largest:
            passed = time.monotonic() - began
            left = BODY_SECONDS - passed
            if keeps_coming:
                left = min(left, SILENT_SECONDS, SILENT_SECONDS + (self._size - before) / LEAST_RATE - passed)
            await self._read(left)
        return self._is_whole and self._size <= largest

    async def _read(self, seconds: float) -> None:
        try:
            message = await asyncio.wait_for(self._receive(), seconds)
        except asyncio.TimeoutError:
            close = {"Connection": "close"}
            raise Problem(408, "the request was not sent in time", "Send it again.", headers=close) from None
        if message["type"] == "http.disconnect":
            raise ended_early()
        self._parts.append(message.get("body", b""))
        self._size += len(self._parts[-1])
        self._is_whole = not message.get("more_body")


async def _is_gone(receive: Receive) -> bool:
    """Whether the caller has left. All of the body has come, so that nothing else can."""
    asking = asyncio.ensure_future(receive())
    await asyncio.sleep(0)
    return asking.done() or not asking.cancel()


def _too_large(largest: int) -> Problem:
    most = f"{largest // 1024**2} MB" if largest >= 1024**2 else f"{largest // 1024} KB"
    return Problem(
        413,
        f"the request has more than {most}",
        "Send less at once.",
        headers={"Connection": "close"},
    )


def check_json(headers: Headers, body: bytes) -> None:
    """What is sent is JSON that can be written down again: no NaN, no half characters, not nested without end."""
    if not body:
        return
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Problem(415, f"what was sent is {kind[:100]!r}", "Send it with Content-Type: application/json.")
    try:
        text = body.decode("utf-8")
        _check_count(text)
        value = json.loads(text, parse_constant=_refuse)
        _check_shape(value)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)  # a number may be too large to be one
        if ESCAPED in text and not is_whole(written):
            raise ValueError("it has half characters (lone surrogates)")
    except (ValueError, RecursionError) as error:
        words = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, f"what was sent is no JSON: {words[:300]}", "Send it again as JSON.") from None


def _check_count(text: str) -> None:
    """Refuse very many values before they are made: that takes long, and stops everything else."""
    if text.count(",") + text.count("[") + text.count("{") <= MOST_CONTAINERS:
        return
    outside = "".join(text.replace("\\\\", "").replace('\\"', "").split('"')[::2])
    containers = outside.count("[") + outside.count("{")
    if containers > MOST_CONTAINERS:
        raise _too_many(containers, "lists and objects", MOST_CONTAINERS)
    values = outside.count(",") + containers
    if values > MOST_VALUES:
        raise _too_many(values, "values", MOST_VALUES)


def _check_shape(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        keys = max((len(each) for each in level if isinstance(each, dict)), default=0)
        if keys > MOST_KEYS:
            raise _too_many(keys, "keys in one object", MOST_KEYS)
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _too_many(count: int, what: str, most: int) -> Problem:
    return Problem(413, f"the request has {count:,} {what}, and {most:,} is the most", "Send less at once.")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _replay(body: bytes, receive: Receive) -> Receive:
    is_sent = False

    async def again() -> Message:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


class _Receiving:
    """What comes in, and whether all of it has come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_over = False

    async def __call__(self) -> Message:
        message = await self._receive()
        self._is_over = message["type"] != "http.request" or not message.get("more_body")
        return message

    async def throw_away(self) -> None:
        """Read what is still coming, for a moment: whoever is cut off while sending does not hear the answer."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._throw_away(), LINGER_SECONDS)

    async def _throw_away(self) -> None:
        while not self._is_over:
            await self()


class _Sending:
    """Every answer carries what keeps a browser from doing more than it should; an answer may say its own."""

    def __init__(self, send: Send, begin: Callable[[], None] = lambda: None, *, is_tls: bool) -> None:
        self._send = send
        self._begin = begin
        self._headers = {**HEADERS, **HSTS} if is_tls else HEADERS
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._begin()
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)
