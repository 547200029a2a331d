"""The routes of Comfy API v2, at the gateway. Methods and paths that it lacks are refused, not passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from comfyui_agent.access.gate import Gate
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.v2 import assets
from comfyui_agent.gateway.v2.errors import OURS, ApiError, not_found
from comfyui_agent.gateway.v2.events import EventRoutes
from comfyui_agent.gateway.v2.jobs import JobRoutes
from comfyui_agent.gateway.v2.live import LiveJobs
from comfyui_agent.wire.application import Handler
from comfyui_agent.wire.prompts import Json

Action = Callable[[GatewayBackend, web.Request], Awaitable[Any]]
JOBS, ASSETS, HEALTH = OURS


def v2_routes(live: LiveJobs, gate: Gate, backend_for: Callable[[web.Request], GatewayBackend]) -> list[web.RouteDef]:
    jobs, events = JobRoutes(live), EventRoutes(live, gate)
    table: dict[str, dict[str, Action]] = {
        JOBS: {"POST": jobs.create, "GET": jobs.listing},
        f"{JOBS}/{{id}}": {"GET": jobs.show},
        f"{JOBS}/{{id}}/events": {"GET": events.events},
        f"{JOBS}/{{id}}/cancel": {"POST": jobs.cancel},
        f"{JOBS}/{{id}}/workflow": {"GET": jobs.workflow},
        ASSETS: {"POST": assets.upload},
        f"{ASSETS}/from-hash": {"POST": assets.from_hash},
        f"{ASSETS}/by-hash/{{hash}}": {"HEAD": assets.by_hash},
        f"{ASSETS}/{{id}}": {"GET": assets.show, "DELETE": assets.remove},
        f"{ASSETS}/{{id}}/content": {"GET": assets.content},
        HEALTH: {"GET": _health},
    }

    def bound(action: Action) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            answer = await action(backend_for(request), request)
            return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

        return handler

    def refusing(methods: dict[str, Action]) -> Handler:
        async def refuse(request: web.Request) -> web.StreamResponse:
            message = f"{request.method} is not possible here"
            raise ApiError(405, "method_not_allowed", message, {"Allow": ", ".join(methods)})

        return refuse

    routes = []
    for path, methods in table.items():
        routes += [web.route(method, path, bound(action)) for method, action in methods.items()]
        routes.append(web.route(hdrs.METH_ANY, path, refusing(methods)))
    return [*routes, *(web.route(hdrs.METH_ANY, f"{each}/{{rest:.*}}", _unknown) for each in OURS)]


async def _unknown(_: web.Request) -> web.StreamResponse:
    raise not_found("path")


async def _health(caller: GatewayBackend, _: web.Request) -> Json:
    return {"status": "ok", "servers": caller.gateway.facts.servers}
