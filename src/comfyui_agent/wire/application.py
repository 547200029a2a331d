"""The routes of a ComfyUI server, each below several prefixes, and the checks in front of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from comfyui_agent.wire import file_routes, prompt_routes
from comfyui_agent.wire.backend import Backend
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.job_routes import JobRoutes
from comfyui_agent.wire.sockets import Delivery, serve_socket

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Action = Callable[[Backend, web.Request], Awaitable[Any]]
"""Answers a request with a response, or with what becomes one of JSON."""
MAX_UPLOAD_BYTES = 100 * 1024 * 1024
PREFIXES = ("", "/api")


def application(
    dialect: Dialect,
    backend_for: Callable[[web.Request], Backend],
    delivery: Delivery,
    routes: Iterable[web.RouteDef] = (),
    middlewares: Iterable[Middleware] = (),
    prefixes: Sequence[str] = PREFIXES,
    *first: web.RouteDef,
) -> web.Application:
    """A server of ComfyUI's protocol. `routes` come behind its own, `first` before them and as they are, `middlewares`
    behind the check of origins.

    Of two `prefixes` of which one begins as the other, the longer stands behind. What a handler does not expect ends
    as a 500, as in the real server.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what a web page of another origin sends to a server on this machine."""
        is_cross_site = request.headers.get("Sec-Fetch-Site") == "cross-site"
        if is_cross_site and dialect.cross_site_refused:
            return web.Response(status=403)
        if _is_foreign(request.headers.get("Host"), request.headers.get("Origin")):
            return web.Response(status=403)
        return web.Response() if request.method == "OPTIONS" else await handler(request)

    async def websocket(request: web.Request) -> web.StreamResponse:
        return await serve_socket(backend_for(request), request, delivery)

    def bound(action: Action) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            answer = await action(backend_for(request), request)
            return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

        return handler

    app = web.Application(client_max_size=MAX_UPLOAD_BYTES, middlewares=[guard, *middlewares])
    app.router.add_routes(first)
    own = [web.RouteDef(method, path, bound(action), {}) for method, path, action in _table(dialect)]
    for route in (web.get("/ws", websocket), *own, *routes):
        for prefix in reversed(prefixes):
            app.router.add_routes([web.RouteDef(route.method, f"{prefix}{route.path}", route.handler, {})])
    return app


def _table(dialect: Dialect) -> list[tuple[str, str, Action]]:
    prompts, jobs = prompt_routes.PromptRoutes(dialect), JobRoutes(dialect)
    table: list[tuple[str, str, Action]] = [
        ("POST", "/prompt", prompts.submit),
        ("GET", "/prompt", prompt_routes.remaining),
        ("POST", "/queue", prompts.change_queue),
        ("GET", "/queue", prompt_routes.queue),
        ("POST", "/interrupt", prompts.interrupt),
        ("POST", "/free", prompt_routes.free),
        ("POST", "/history", prompt_routes.change_history),
        ("GET", "/history", prompt_routes.history),
        ("GET", "/history/{id}", prompt_routes.history_of),
        ("GET", "/object_info", lambda backend, _: backend.object_info(None)),
        ("GET", "/object_info/{name}", lambda backend, request: backend.object_info(request.match_info["name"])),
        ("GET", "/system_stats", lambda backend, _: backend.system_stats()),
        ("GET", "/features", lambda backend, _: backend.features()),
        ("GET", "/embeddings", _embeddings),
        ("GET", "/models", _model_folders),
        ("GET", "/models/{folder}", _models),
        ("GET", "/view", partial(file_routes.view, dialect)),
        ("POST", "/upload/image", file_routes.upload_image),
        ("POST", "/upload/mask", file_routes.upload_mask),
    ]
    if dialect.jobs_api:
        table += [("GET", "/api/jobs", jobs.listing), ("GET", "/api/jobs/{job_id}", jobs.show)]
    if dialect.jobs_cancel_api:
        table += [("POST", "/api/jobs/cancel", jobs.cancel_many), ("POST", "/api/jobs/{job_id}/cancel", jobs.cancel)]
    return table


async def _embeddings(backend: Backend, _: web.Request) -> list[str]:
    return [name.rsplit(".", 1)[0] for name in (await backend.models())["embeddings"]]


async def _model_folders(backend: Backend, _: web.Request) -> list[str]:
    return list(await backend.models())


async def _models(backend: Backend, request: web.Request) -> Any:
    files = (await backend.models()).get(request.match_info["folder"])
    return web.Response(status=404) if files is None else files


def _is_foreign(host: str | None, origin: str | None) -> bool:
    if not host or not origin:
        return False
    own, other = urlsplit(f"//{host.lower()}"), urlsplit(origin.lower())
    if not _is_loopback(own.hostname or ""):
        return False
    own_name, other_name = host.lower(), other.netloc
    if other.port is None:
        own_name = own.hostname or ""
    if own.port is None:
        other_name = other.hostname or ""
    return bool(own_name and other_name) and own_name != other_name


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
