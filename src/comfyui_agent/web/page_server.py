"""Serving the page with uvicorn in this event loop, beside the agent or alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.routing import Route

from comfyui_agent.access.listen_address import BACKLOG, Listening, is_loopback
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.liveness import BEAT_SECONDS, registered
from comfyui_agent.store.store import Store
from comfyui_agent.web import openapi, probes, site
from comfyui_agent.web.api import (
    batches,
    books,
    bulk,
    event_routes,
    exports,
    inputs,
    job_results,
    jobs,
    notifications,
    reports,
    servers,
    variations,
    workflows,
)
from comfyui_agent.web.connections import HEAD_SECONDS, Connection, ConnectionLimits, raise_limit
from comfyui_agent.web.context import Context
from comfyui_agent.web.guard import MCP, Guard
from comfyui_agent.web.mcp_route import McpRoute
from comfyui_agent.web.problems import JsonAnswer, add_handlers

log = logging.getLogger(__name__)

CLOSING_SECONDS = 0.4
INDEX_PAUSE = 1.0


def _is_logged(record: logging.LogRecord) -> bool:
    """Leave out requests that are cancelled when the page stops: there may be very many."""
    return record.exc_info is None or record.exc_info[0] is not asyncio.CancelledError


logging.getLogger("uvicorn.error").addFilter(_is_logged)


def create_app(context: Context) -> FastAPI:
    """Every route, behind the guard."""
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        default_response_class=JsonAnswer,
    )
    app.state.context = context
    queue = (bulk, jobs, variations, job_results, exports, batches, books)
    routes = (*queue, servers, workflows, inputs, reports, notifications, event_routes)
    for module in (*routes, probes, openapi, site):
        app.include_router(module.router)
    app.state.mcp = McpRoute(context)
    app.router.routes.append(Route(MCP, app.state.mcp, methods=["POST"], include_in_schema=False))
    add_handlers(app)
    openapi.describe(app)
    app.add_middleware(Guard, gate=context.gate, limits=context.limits)
    return app


class _Server(uvicorn.Server):
    """A server that leaves signals to the process, with limits on connections and TLS handshakes."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        state: dict[str, Any] = {"server_state": self.server_state, "app_state": self.lifespan.state}
        connect = partial(Connection, config=self.config, limits=self._limits, **state)
        timeout = HEAD_SECONDS if self.config.ssl else None
        self.servers = [
            await asyncio.get_running_loop().create_server(
                connect, sock=each, ssl=self.config.ssl, backlog=self.config.backlog, ssl_handshake_timeout=timeout
            )
            for each in sockets or ()
        ]
        self.started = True


@contextlib.asynccontextmanager
async def serving(store: Store, workspace: Workspace, listening: Listening) -> AsyncIterator[Context]:
    """Serve the page of a workspace until the end of this block."""
    raise_limit()
    lock = AgentLock(workspace.locks, is_page=True)
    async with registered(store, lock):
        context = Context(store, workspace, lock, serves_loopback=is_loopback(listening.host))
        async with context.gate.auditing(), _background(context), _answering(context, listening):
            yield context


@contextlib.asynccontextmanager
async def _background(context: Context) -> AsyncIterator[None]:
    """Run what goes on beside the answers: events, rendering, servers, the indexes of names and prompts."""
    await context.event_feed.begin()
    loops = (
        context.event_feed.follow(),
        context.live_pages.keep_rendering(),
        context.fleet.keep_fresh(),
        _keep_indexing(context),
        _keep_beating(context),
    )
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        await end_tasks(tasks)
        await context.fleet.close()
        await context.submissions.background.stop()


async def _keep_indexing(context: Context) -> None:
    """Make new names and prompts searchable, some at a time, so that other writers get their turn."""
    while True:
        indexed = 0
        try:
            indexed = await ops.index_names(context.store)
            indexed += await context.prompts.index()
        except StoreError as error:
            log.info("names and prompts could not be indexed: %s", error)
        await asyncio.sleep(0.02 if indexed else INDEX_PAUSE)


async def _keep_beating(context: Context) -> None:
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        with contextlib.suppress(StoreError):
            await context.store.run(ops.beat_agent, context.lock.worker)


@contextlib.asynccontextmanager
async def _answering(context: Context, listening: Listening) -> AsyncIterator[None]:
    app = create_app(context)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        backlog=BACKLOG,
        http=Connection,
        ws="none",
    )
    config.load()
    config.ssl = listening.tls
    trusts = context.gate.proxies.trusts
    server = _Server(config, ConnectionLimits(lambda address: is_loopback(address) or trusts(address)))
    running = asyncio.create_task(server.serve(sockets=[listening.socket]))
    serving_agents = asyncio.create_task(app.state.mcp.serve())
    try:
        await SYSTEM_CLOCK.wait_while(lambda: not server.started and not running.done(), every=0.01)
        if running.done():
            running.result()
        yield
    finally:
        await context.live_pages.close()
        await context.event_feed.close()
        server.should_exit = True
        await asyncio.wait({running}, timeout=CLOSING_SECONDS)
        for each in list(server.server_state.connections):
            cast("Connection", each).cut()
        server.force_exit = True
        await end_tasks([running, serving_agents, *server.server_state.tasks])
