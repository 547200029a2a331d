"""Refusing requests that a web page of another origin sends to a server on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def origin_guard(refuse_cross_site: bool) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if refuse_cross_site and request.headers.get("Sec-Fetch-Site") == "cross-site":
            return web.Response(status=403)
        if _is_foreign(request.headers.get("Host"), request.headers.get("Origin")):
            return web.Response(status=403)
        if request.method == "OPTIONS":
            return web.Response()
        return await handler(request)

    return guard


def _is_foreign(host: str | None, origin: str | None) -> bool:
    if not host or not origin:
        return False
    own, other = urlsplit(f"//{host.lower()}"), urlsplit(origin.lower())
    if not _is_loopback(own.hostname):
        return False
    own_name, other_name = host.lower(), other.netloc
    if other.port is None:
        own_name = own.hostname or ""
    if own.port is None:
        other_name = other.hostname or ""
    return bool(own_name and other_name) and own_name != other_name


def _is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
