"""The routes of Comfy API v2, at the gateway. Methods and paths that it lacks are refused, not passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import hdrs, web

from comfyui_agent.access.gate import Gate
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.v2 import assets
from comfyui_agent.gateway.v2.errors import PREFIX, ApiError, not_found
from comfyui_agent.gateway.v2.jobs import JobRoutes
from comfyui_agent.wire.prompts import Json

Action = Callable[..., Awaitable[Any]]


def v2_route(gate: Gate, backend_for: Callable[[web.Request], GatewayBackend]) -> web.RouteDef:
    jobs = JobRoutes(gate)
    table: dict[str, dict[str, Action]] = {
        "jobs": {"POST": jobs.create, "GET": jobs.listing},
        "jobs/*": {"GET": jobs.show},
        "jobs/*/events": {"GET": jobs.events},
        "jobs/*/cancel": {"POST": jobs.cancel},
        "jobs/*/workflow": {"GET": jobs.workflow},
        "assets": {"POST": assets.upload},
        "assets/from-hash": {"POST": assets.from_hash},
        "assets/by-hash/*": {"HEAD": assets.by_hash},
        "assets/*": {"GET": assets.show, "DELETE": assets.remove},
        "assets/*/content": {"GET": assets.content},
        "health": {"GET": _health},
    }

    async def dispatch(request: web.Request) -> web.StreamResponse:
        parts = request.match_info["path"].split("/")
        at = 2 if parts[1:2] == ["by-hash"] else 1
        exact, named = "/".join(parts), "/".join([*parts[:at], "*", *parts[at + 1 :]])
        methods, given = (table[exact], []) if exact in table else (table.get(named), parts[at : at + 1])
        if methods is None:
            raise not_found("path")
        if request.method not in methods:
            allowed = {"Allow": ", ".join(methods)}
            raise ApiError(405, "method_not_allowed", f"{request.method} is not possible here", allowed)
        answer = await methods[request.method](backend_for(request), request, *given)
        return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)

    return web.route(hdrs.METH_ANY, f"{PREFIX}/{{path:(jobs|assets|health)(/.*)?}}", dispatch)


async def _health(caller: GatewayBackend, _: web.Request) -> Json:
    return {"status": "ok", "servers": caller.gateway.facts.servers}
