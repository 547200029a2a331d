"""`/mcp`: the tools for AI agents over streamable HTTP, with the same callers and limits as every other route.

Nothing is kept between requests, so that an agent's connection survives a restart. The SDK is loaded for the first one.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from comfyui_agent.access.gate import Caller
from comfyui_agent.web.context import Context
from comfyui_agent.web.sweep_planning import CallersPlanner

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from comfyui_agent.mcp.host import Client

CALLER = "e3_caller"


class McpRoute:
    """An ASGI application. `serve` has to run meanwhile."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_wanted = asyncio.Event()
        self._server: asyncio.Future[MCPServer] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. The guard has checked and counted it."""
        scope[CALLER] = await self._context.gate.admit(Request(scope))
        self._is_wanted.set()
        server = await asyncio.shield(self._future())
        await server.session_manager.handle_request(scope, receive, send)

    async def serve(self) -> None:
        await self._is_wanted.wait()
        try:
            server = await asyncio.to_thread(self._load)
            server.streamable_http_app(stateless_http=True, json_response=True, host="")
            async with server.session_manager.run():
                self._future().set_result(server)
                await asyncio.Event().wait()
        except Exception as error:
            if not self._future().done():
                self._future().set_exception(error)
            raise

    def _future(self) -> asyncio.Future[MCPServer]:
        self._server = self._server or asyncio.get_running_loop().create_future()
        return self._server

    def _load(self) -> MCPServer:
        from comfyui_agent.mcp.host import Host
        from comfyui_agent.mcp.server import make_server

        context, made = self._context, self._context.submissions
        ours = context.store, context.workspace, made.intake, context.forecasts
        return make_server(Host(*ours, context.fleet.reports, context.outputs, made.background.start), self._client)

    def _client(self, request: Any) -> Client:
        from comfyui_agent.mcp.host import Client

        context, caller = self._context, request.scope[CALLER]
        assert isinstance(caller, Caller)
        planner = CallersPlanner(context.planning, caller.scope, request)
        scheme = "https" if context.gate.proxies.is_https(request) else "http"
        url = f"{scheme}://{request.headers.get('host', '')}"
        return Client(caller, context.actor(caller), planner, url, partial(context.limits.count, "changes", caller))
