"""What E3 serves over HTTP, alone or beside an agent: the web page, and the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

import typer

from comfyui_agent.access.listen_address import (
    Listening,
    NotAllowed,
    NotServed,
    PortTaken,
    is_loopback,
    listen,
    tls_of,
)
from comfyui_agent.cli.invocation import USAGE
from comfyui_agent.cli.output import fail, warn
from comfyui_agent.comfy.address import NoServer
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Something to serve, at the address in a section of the settings."""

    name: str
    section: str
    module: str
    """Has `serving(store, workspace, listening)`, and takes a while to load."""


PAGE = Site("page", "ui", "comfyui_agent.web.page_server")
GATEWAY = Site("gateway", "gateway", "comfyui_agent.gateway.service")


@dataclass(frozen=True)
class Served:
    """Where a site is, and the task that serves it. It ends only if that fails."""

    url: str
    answering: asyncio.Task[None]


@contextlib.asynccontextmanager
async def served(site: Site, store: Store, workspace: Workspace, *, any_port: bool = False) -> AsyncIterator[Served]:
    """Serve a site of a workspace meanwhile. Fails if that is not possible.

    With `any_port` another port is taken where the configured one is not free.
    """
    try:
        listening = await _listen(site, store, workspace, any_port=any_port)
    except NotServed as error:
        fail(str(error))
    answering = asyncio.create_task(_answer(site, store, workspace, listening))
    try:
        yield Served(listening.url, answering)
    except (StoreError, OSError) as error:
        if answering.done() and answering.exception() is error:
            fail(f"the {site.name} cannot be served: {error}")
        raise
    finally:
        await end_tasks([answering])
        listening.close()


@contextlib.asynccontextmanager
async def served_beside(store: Store, workspace: Workspace) -> AsyncIterator[None]:
    """Serve beside an agent what the settings ask for. What is not possible is said, and the work goes on without."""
    settings = workspace.settings
    wanted = {PAGE: settings.ui.enabled, GATEWAY: settings.gateway.port is not None}
    answering: list[asyncio.Task[None]] = []
    try:
        for site in (each for each, is_wanted in wanted.items() if is_wanted):
            try:
                listening = await _listen(site, store, workspace)
            except NotServed as error:
                _warn(site, error)
                continue
            typer.echo(f"The {site.name} is at {listening.url}", err=True)
            answering.append(asyncio.create_task(_answer_or_warn(site, store, workspace, listening)))
        yield
    finally:
        await end_tasks(answering)


async def _listen(site: Site, store: Store, workspace: Workspace, *, any_port: bool = False) -> Listening:
    """NotServed if nothing can listen there; one line and exit 2 if it is not allowed."""
    address = getattr(workspace.settings, site.section)
    if site is GATEWAY:
        _check_editor(workspace)
    try:
        tls = None if site is GATEWAY and is_loopback(address.host) else tls_of(workspace)
        try:
            return await listen(store, address.host, address.port, tls, section=site.section)
        except PortTaken:
            if not any_port:
                raise
            return await listen(store, address.host, 0, tls, section=site.section)
    except NotAllowed as error:
        fail(str(error), code=USAGE)


def _check_editor(workspace: Workspace) -> None:
    """Fails if `gateway.editor` names no server. Those that E3 launches may not be there yet."""
    from comfyui_agent.gateway.editor import find_editor

    comfyui = workspace.settings.comfyui
    try:
        if not comfyui.launch:
            find_editor(workspace.settings.gateway.editor, comfyui.urls)
    except (NoServer, ValueError) as error:
        fail(f"gateway.editor: {error}", code=USAGE)


async def _answer_or_warn(site: Site, store: Store, workspace: Workspace, listening: Listening) -> None:
    try:
        await _answer(site, store, workspace, listening)
    except Exception as error:
        log.info("the %s ended", site.name, exc_info=True)
        _warn(site, error)


def _warn(site: Site, error: Exception) -> None:
    warn(f"{error}. The work goes on without the {site.name}.")


async def _answer(site: Site, store: Store, workspace: Workspace, listening: Listening) -> None:
    """Load a site, which takes a while, in a thread. Who connects meanwhile waits."""
    with contextlib.closing(listening):
        module = await asyncio.to_thread(importlib.import_module, site.module)
        async with module.serving(store, workspace, listening):
            await asyncio.Event().wait()
