"""The middleware in front of every route: origin, callers, body limits, and security headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from comfyui_agent.access.gate import Caller, Gate, check_role
from comfyui_agent.access.limits import RequestLimits, TimeShare, Turns
from comfyui_agent.access.origins import check_direct, check_origin
from comfyui_agent.access.problem import ended_early, short_of
from comfyui_agent.domain.tokens import Role
from comfyui_agent.pools import REQUESTS
from comfyui_agent.web.connections import SHORTAGE
from comfyui_agent.web.problems import problem_of, shown
from comfyui_agent.web.request_body import RequestBody, check_json

LARGEST_BODY = 4 * 1024 * 1024
SMALL_BODY = 64 * 1024
LARGEST_FORM = 4 * 1024
LARGEST_UPLOAD = 64 * 1024 * 1024
LARGE_AT_ONCE = 4
LARGE_PER_CALLER = 2
LARGE_PATIENCE = 5.0
PARSING_SHARE = 8
"""At most one part in this many of the time is spent parsing large bodies."""
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
FORMS = ("/login", "/logout")
"""Plain forms, which work without scripts. All other bodies are JSON, but for uploads."""
UPLOADS = {
    ("POST", "/api/v1/workflows"): Role.ADMIN,
    ("POST", "/api/v1/inputs"): Role.USER,
    ("POST", "/api/v1/jobs/bulk"): Role.USER,
}
"""Take a file as it is, and from whom."""
PROBES = ("/healthz", "/readyz")
MCP = "/mcp"
"""Every call of an AI agent is a POST. Most only look; each tool says who may use it, and counts changes itself."""
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
    """Refuses foreign requests while no token is needed, cross-site changes, and bodies that are too large or no JSON.

    It also turns every exception into a problem and adds the security headers.
    """

    def __init__(self, app: ASGIApp, gate: Gate, limits: RequestLimits) -> None:
        self._app = app
        self._gate = gate
        self._limits = limits
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._large_per_caller = Turns(LARGE_PER_CALLER)
        self._parsing = TimeShare(PARSING_SHARE)
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Reads wait for a turn of their address, because a client can send any number of them."""
        if scope["type"] != "http":
            return
        is_tls = scope.get("scheme") == "https"
        body = RequestBody(Headers(scope=scope), receive)
        if scope["path"] in PROBES or scope["method"] in UNSAFE:
            await self._answer(scope, body, _Sender(send, is_tls=is_tls))
            return
        async with self._turns.turn(self._gate.proxies.client_of(Request(scope))) as end_turn:
            scope["state"] = {**scope.get("state", {}), "end_turn": end_turn}
            await self._answer(scope, body, _Sender(send, end_turn, is_tls=is_tls))

    async def _answer(self, scope: Scope, body: RequestBody, send: _Sender) -> None:
        try:
            shortage = scope.get("state", {}).get(SHORTAGE)
            if shortage and scope["path"] not in PROBES:
                raise short_of(shortage, "Close some, or try again in 5 s.")
            headers = Headers(scope=scope)
            if scope["path"] not in PROBES and await self._gate.is_open():  # probes answer even without a database
                check_direct(headers)
            if scope["method"] in UNSAFE:
                check_origin(headers)
                if (role := UPLOADS.get((scope["method"], scope["path"]))) is not None:
                    await self._take_upload(scope, body, send, role)
                    return
                body.replay(await self._read(scope, headers, body))
            await self._app(scope, body, send)
        except Exception as error:  # noqa: BLE001 - it is logged there
            problem = problem_of(error, Request(scope))
            if not send.has_begun:
                await body.drain()
                await shown(Request(scope), problem)(scope, body, send)

    async def _read(self, scope: Scope, headers: Headers, body: RequestBody) -> bytes:
        """Read the body after the caller was admitted. A large one waits for a turn and is checked in a thread."""
        if scope["path"] in FORMS:
            return await body.read(LARGEST_FORM)
        caller = await (
            self._admit(scope, Role.READ, "reads") if scope["path"] == MCP else self._admit(scope, Role.USER)
        )
        if any(scope["path"] == path for _, path in UPLOADS):  # no such method: a file is no reason to complain of it
            return b""
        if await body.fits(SMALL_BODY):
            content = await body.read(SMALL_BODY)
            check_json(headers, content)
            return content
        async with self._large_turn(caller.address if caller.token is None else caller.scope):
            content = await body.read(LARGEST_BODY, keeps_coming=True)
            async with self._parsing.turn():
                if await Request(scope, body).is_disconnected():
                    raise ended_early()
                await REQUESTS.run(check_json, headers, content)
            return content

    async def _admit(self, scope: Scope, role: Role, counted: Literal["changes", "reads"] = "changes") -> Caller:
        caller = await self._gate.admit(Request(scope))
        check_role(caller, role)
        self._limits.count(counted, caller)
        return caller

    async def _take_upload(self, scope: Scope, body: RequestBody, send: _Sender, role: Role) -> None:
        """Answer a request whose body is a file. Its turn lasts until it is answered: the file is in memory so long."""
        caller = await self._admit(scope, role)
        async with self._large_turn(caller.address if caller.token is None else caller.scope):
            body.replay(await body.read(LARGEST_UPLOAD, keeps_coming=True))
            await self._app(scope, body, send)

    @contextlib.asynccontextmanager
    async def _large_turn(self, caller: str) -> AsyncIterator[None]:
        """Hold only a few large bodies at once, and not all of them for one caller."""
        async with contextlib.AsyncExitStack() as turns:

            async def take() -> None:
                await turns.enter_async_context(self._large_per_caller.turn(caller))
                await turns.enter_async_context(self._large)

            try:
                await asyncio.wait_for(take(), LARGE_PATIENCE)
            except asyncio.TimeoutError:
                raise short_of(f"too many large requests: this one had no turn for {LARGE_PATIENCE:.0f} s") from None
            yield


class _Sender:
    """Sends an answer with the security headers. A header that the answer has itself wins."""

    def __init__(self, send: Send, on_begin: Callable[[], None] = lambda: None, *, is_tls: bool) -> None:
        self._send = send
        self._on_begin = on_begin
        self._headers = {**HEADERS, **HSTS} if is_tls else HEADERS
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            self._on_begin()
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)
