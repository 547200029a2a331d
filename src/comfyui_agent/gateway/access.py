"""Who calls the gateway: by a token in a header, as a password, or in the path."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware
from starlette.requests import HTTPConnection

from comfyui_agent.access.gate import READING, Caller, Gate, check_role
from comfyui_agent.access.limits import RequestLimits
from comfyui_agent.access.origins import check_origin
from comfyui_agent.access.problem import Problem
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.tokens import Role
from comfyui_agent.wire.application import PREFIXES, Handler

TOKEN_PATH = "/t/{token}"  # noqa: S105 - a pattern
ALL_PREFIXES = (*PREFIXES, *(f"{TOKEN_PATH}{prefix}" for prefix in PREFIXES))
CALLER: Any = web.RequestKey("caller", Caller) if hasattr(web, "RequestKey") else "caller"
"""aiohttp 3.14 and newer want a key of its own type."""
LOOK_SECONDS = 1.0
CREDENTIALS = frozenset({b"authorization", b"cookie"})
HOW = "Send a token of e3 token create: Authorization: Bearer TOKEN, as the password of Basic, or below /t/TOKEN/."


def admission(gate: Gate, limits: RequestLimits) -> Middleware:
    """Admits callers by the rules of the page, and counts what they ask for. Handlers find out by `caller_of`."""

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            caller = request[CALLER] = await _admitted(gate, request)
            limits.count("reads" if request.method in READING else "changes", caller)
            if hdrs.UPGRADE not in request.headers:
                return await handler(request)
        except Problem as problem:
            return _refusal(problem)
        watching = asyncio.create_task(_end_with_token(gate, request))
        try:
            return await handler(request)
        finally:
            await end_tasks([watching])

    return admit


def caller_of(request: web.Request) -> Caller:
    """Who sent a request that was admitted."""
    found: Caller = request[CALLER]
    return found


async def _end_with_token(gate: Gate, request: web.Request) -> None:
    """Cut a websocket when its caller would not be admitted any more."""
    is_admitted = True
    while is_admitted:
        await asyncio.sleep(LOOK_SECONDS)
        is_admitted = await gate.still_admits(caller_of(request))
    if request.transport is not None:
        request.transport.abort()


async def _admitted(gate: Gate, request: web.Request) -> Caller:
    """The caller. Problem for strangers, for roles that may not, and for pages of other sites."""
    connection = _connection(request)
    is_reading = request.method in READING
    if not is_reading or hdrs.UPGRADE in request.headers:
        check_origin(connection.headers)
    secret = "" if await gate.is_open() else _secret_of(request)
    address = gate.proxies.client_of(connection)
    caller = await (gate.check(secret, address) if secret else gate.admit(connection))
    check_role(caller, Role.READ if is_reading else Role.USER)
    return caller


def _secret_of(request: web.Request) -> str:
    """The token that a client shows. An empty one is none."""
    if "token" in request.match_info:
        return request.match_info["token"]
    kind, _, shown = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() != "basic":
        return shown.strip() if kind.lower() == "bearer" else ""
    try:
        return base64.b64decode(shown).decode().partition(":")[2]
    except ValueError:
        return ""


def _connection(request: web.Request) -> HTTPConnection:
    """The request as the gate reads it. It finds no tokens there: `_secret_of` does."""
    headers = [(name.lower(), value) for name, value in request.raw_headers if name.lower() not in CREDENTIALS]
    client = (request.remote or "", 0)
    return HTTPConnection({"type": "http", "scheme": request.scheme, "headers": headers, "client": client})


def _refusal(problem: Problem) -> web.Response:
    """A sentence, because ComfyUI's clients show it as it is. A browser asks for the token, as for a password."""
    headers = dict(problem.headers)
    remedy = problem.remedy
    if problem.status == 401:
        headers[hdrs.WWW_AUTHENTICATE] = f'Basic realm="E3", {headers[hdrs.WWW_AUTHENTICATE]}'
        remedy = HOW
    return web.Response(status=problem.status, text=f"E3: {problem.detail}. {remedy}", headers=headers)
