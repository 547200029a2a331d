"""Serving the page: one socket, in this event loop, beside the agent or alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, cast

import uvicorn

from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.access import Gate
from comfyui_agent.web.app import create_app
from comfyui_agent.web.audit_trail import AuditTrail
from comfyui_agent.web.connections import HEAD_SECONDS, Connection, Places, raise_limit
from comfyui_agent.web.context import Context
from comfyui_agent.web.fleet_view import FleetView
from comfyui_agent.web.hub import Hub
from comfyui_agent.web.limits import OpenJobQuota, RequestLimits
from comfyui_agent.web.listen_address import Listening, is_loopback
from comfyui_agent.web.metrics import Metrics
from comfyui_agent.web.news import News
from comfyui_agent.web.outputs import Outputs
from comfyui_agent.web.submissions import Submissions
from comfyui_agent.web.sweep_planning import Planning

log = logging.getLogger(__name__)

CLOSING_SECONDS = 0.4
INDEX_PAUSE = 1.0
BACKLOG = 512


def _is_news(record: logging.LogRecord) -> bool:
    """A request that is ended with the page is none, and there may be very many of them."""
    return record.exc_info is None or record.exc_info[0] is not asyncio.CancelledError


logging.getLogger("uvicorn.error").addFilter(_is_news)


class _Server(uvicorn.Server):
    """Signals are the business of whoever started this."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def __init__(self, config: uvicorn.Config, places: Places) -> None:
        super().__init__(config)
        self._places = places

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As the class above does it, with a bound on the time for which someone may hold up the start of TLS."""
        kept: dict[str, Any] = {"server_state": self.server_state, "app_state": self.lifespan.state}
        make = partial(Connection, config=self.config, places=self._places, **kept)
        patience = HEAD_SECONDS if self.config.ssl else None
        self.servers = [
            await asyncio.get_running_loop().create_server(
                make, sock=each, ssl=self.config.ssl, backlog=self.config.backlog, ssl_handshake_timeout=patience
            )
            for each in sockets or ()
        ]
        self.started = True


@contextlib.asynccontextmanager
async def serving(store: Store, workspace: Workspace, listening: Listening) -> AsyncIterator[Context]:
    """Serve the page of a workspace until the end of this block."""
    raise_limit()
    lock = AgentLock(workspace.locks, is_page=True)
    try:
        context = _context(store, workspace, lock, listening.host)
        async with _kept_going(context), _answering(context, listening):
            yield context
    finally:
        lock.release()


def _context(store: Store, workspace: Workspace, lock: AgentLock, host: str) -> Context:
    fleet = FleetView(store, workspace)
    ui, audit = workspace.settings.ui, AuditTrail(store)
    gate = Gate(store, serves_loopback=is_loopback(host), ui=ui)
    gate.on_failure = audit.count_failed_login
    return Context(
        store=store,
        workspace=workspace,
        lock=lock,
        gate=gate,
        fleet=fleet,
        outputs=Outputs(workspace),
        metrics=Metrics(store, fleet),
        news=News(store),
        submissions=Submissions(workspace),
        hub=Hub(store, fleet),
        limits=RequestLimits(ui),
        quota=OpenJobQuota(store, ui.open_jobs_per_user),
        audit=audit,
        planning=Planning(),
    )


@contextlib.asynccontextmanager
async def _kept_going(context: Context) -> AsyncIterator[None]:
    """What runs beside the answers: events, rendering, looking at servers, the index of names."""
    context.news.on_event(context.metrics.hear)
    await context.news.begin()
    works = [
        *(context.news.follow(), context.hub.keep_rendering(), context.fleet.keep_fresh()),
        *(_keep_indexing(context), context.audit.keep_merging()),
    ]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        await end_tasks(tasks)
        await context.fleet.close()
        await context.submissions.close()
        await context.gate.close()
        await context.audit.write_failed_logins()


async def _keep_indexing(context: Context) -> None:
    """Names of new jobs become searchable, some at a time: others write, too."""
    while True:
        indexed = 0
        try:
            indexed = await ops.index_names(context.store)
        except StoreError as error:
            log.info("names could not be indexed: %s", error)
        await asyncio.sleep(0.02 if indexed else INDEX_PAUSE)


@contextlib.asynccontextmanager
async def _answering(context: Context, listening: Listening) -> AsyncIterator[None]:
    config = uvicorn.Config(
        create_app(context),
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
    server = _Server(config, Places(lambda address: is_loopback(address) or trusts(address)))
    running = asyncio.create_task(server.serve(sockets=[listening.socket]))
    try:
        await SYSTEM_CLOCK.wait_while(lambda: not server.started and not running.done(), every=0.01)
        if running.done():
            running.result()
        yield
    finally:
        await context.hub.close()
        await context.news.close()
        server.should_exit = True
        await asyncio.wait({running}, timeout=CLOSING_SECONDS)
        for each in list(server.server_state.connections):
            cast("Connection", each).cut()
        server.force_exit = True
        await end_tasks([running, *server.server_state.tasks])
