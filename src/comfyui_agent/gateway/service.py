"""The gateway of a workspace, put together and served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

from aiohttp import hdrs, web

from comfyui_agent.access.gate import Gate
from comfyui_agent.access.limits import OpenJobQuota, RequestLimits, actor_for
from comfyui_agent.access.listen_address import Listening, is_loopback
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.live_feed import FeedReader
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.gateway.access import ALL_PREFIXES, admission, caller_of
from comfyui_agent.gateway.backend import GatewayBackend
from comfyui_agent.gateway.context import DIALECT, Gateway
from comfyui_agent.gateway.editor import Editor, find_editor
from comfyui_agent.gateway.editor_sockets import EditorSockets
from comfyui_agent.gateway.names import Entries
from comfyui_agent.gateway.relay import Relay
from comfyui_agent.gateway.upstream import FleetAway, Upstream
from comfyui_agent.gateway.v2.errors import enveloped
from comfyui_agent.gateway.v2.routes import v2_route
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.wire.application import Handler, application

CLOSING_SECONDS = 0.4


@contextlib.asynccontextmanager
async def serving(store: Store, workspace: Workspace, listening: Listening) -> AsyncIterator[None]:
    """Serve the gateway of a workspace until the end of this block."""
    settings = workspace.settings
    urls = partial(server_urls, workspace)
    gate = Gate(store, settings.ui, serves_loopback=is_loopback(listening.host))
    limits, quota = RequestLimits(settings.ui), OpenJobQuota(store, settings.ui.open_jobs_per_user)
    entries, upstream = Entries(store), Upstream(urls, SYSTEM_CLOCK)
    relay = Relay(store, entries)
    feed = FeedReader(workspace.locks, relay.hear)
    editor = Editor(lambda: find_editor(settings.gateway.editor, urls()))
    sockets = EditorSockets(relay, editor.transport, relay.send, SYSTEM_CLOCK)
    gateway = Gateway(store, workspace, upstream, relay, entries, lambda: feed.is_connected)

    def backend_for(request: web.Request) -> GatewayBackend:
        return GatewayBackend(gateway, actor_for(caller_of(request), settings, quota))

    async def uploaded(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/api/internal/files/input"):  # is no route of ComfyUI's
            return await editor.pass_on(request)
        return web.json_response([f"{name} [input]" for name in await gateway.uploads.newest() if "/" not in name])

    routes = [web.get("/internal/files/input", uploaded), *editor.routes]
    middlewares = [explain, admission(gate, limits)]
    app = application(DIALECT, backend_for, sockets, routes, middlewares, ALL_PREFIXES, v2_route(gate, backend_for))
    app.middlewares.insert(0, enveloped())
    async with gate.auditing(), contextlib.AsyncExitStack() as stack:
        for part in (upstream, relay, feed):
            part.start()
        for end in (upstream.close, editor.close, sockets.close, relay.stop, feed.stop):
            stack.push_async_callback(end)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSING_SECONDS)
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        await web.SockSite(runner, listening.socket, ssl_context=listening.tls).start()
        yield


@web.middleware
async def explain(request: web.Request, handler: Handler) -> web.StreamResponse:
    """503 and a sentence while servers or the database are away."""
    try:
        return await handler(request)
    except (FleetAway, StoreError) as error:
        if hdrs.UPGRADE in request.headers:  # it is no HTTP any more
            raise
        return web.Response(status=503, text=f"E3: {error}. Try again in a moment.", headers={"Retry-After": "2"})
