"""`e3 serve`: the web page and the API, without working the queue off."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import USAGE, Invocation, workspace_command
from comfyui_agent.cli.output import fail, warn
from comfyui_agent.cli.workspace import check_addresses, check_files, opened, with_settings
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.listen_address import Listening, NotAllowed, NotServed, PortTaken, listen, tls_of

log = logging.getLogger(__name__)

WITHOUT_PAGE = "The work goes on without the page."


@workspace_command(options=("workspace", "config", "database", "verbose"), until_signal=True)
async def serve(
    call: Invocation,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; else ui.host, 127.0.0.1.")] = "",
    port: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=65535, help="Which port; else ui.port, 8190.")
    ] = None,
) -> None:
    """Serve the web page and the API of a workspace, whether or not an agent works there.

    e3 run serves them, too. Without tokens only this machine can reach them, and everyone here is an admin; another
    address needs a token first: e3 token create.
    """
    check_addresses(call.workspace, are_given=False)
    await OBJECTS.run(check_files, call.workspace)
    ui = call.workspace.settings.ui
    workspace = with_settings(call.workspace, "ui", host=host or ui.host, port=port or ui.port)
    async with opened(workspace, create=True, is_patient=True) as store, page_of(store, workspace) as page:
        typer.echo(f"E3 is at {page.url}, the API at {page.url}/docs. Ctrl-C stops; the queue stays.", err=True)
        await page.answering


@dataclass(frozen=True)
class Page:
    """Where the page is, and the task that serves it. It ends only if that fails."""

    url: str
    answering: asyncio.Task[None]


@contextlib.asynccontextmanager
async def page_of(store: Store, workspace: Workspace, *, any_port: bool = False) -> AsyncIterator[Page]:
    """Serve the page of a workspace meanwhile. Fails if that is not possible.

    With `any_port` another port is taken where the configured one is not free.
    """
    try:
        listening = await _listen(store, workspace, any_port=any_port)
    except NotServed as error:
        fail(str(error))
    answering = asyncio.create_task(_answer(store, workspace, listening))
    try:
        yield Page(listening.url, answering)
    except (StoreError, OSError) as error:
        if answering.done() and answering.exception() is error:
            fail(f"the page cannot be served: {error}")
        raise
    finally:
        await end_tasks([answering])
        listening.close()


@contextlib.asynccontextmanager
async def page_beside(store: Store, workspace: Workspace) -> AsyncIterator[None]:
    """Serve the page beside an agent. If that is not possible, say so and go on without it."""
    answering: asyncio.Task[None] | None = None
    if workspace.settings.ui.enabled:
        try:
            listening = await _listen(store, workspace)
        except NotServed as error:
            warn(f"{error}. {WITHOUT_PAGE}")
        else:
            typer.echo(f"The page is at {listening.url}", err=True)
            answering = asyncio.create_task(_answer(store, workspace, listening))
            answering.add_done_callback(_warn_if_failed)
    try:
        yield
    finally:
        if answering is not None:
            await end_tasks([answering])


async def _listen(store: Store, workspace: Workspace, *, any_port: bool = False) -> Listening:
    """NotServed if nothing can listen there; one line and exit 2 if it is not allowed."""
    ui = workspace.settings.ui
    try:
        return await listen(store, ui.host, ui.port, tls_of(workspace))
    except NotAllowed as error:
        fail(str(error), code=USAGE)
    except PortTaken:
        if any_port:
            return await listen(store, ui.host, 0, tls_of(workspace))
        raise


def _warn_if_failed(answering: asyncio.Task[None]) -> None:
    if not answering.cancelled() and answering.exception() is not None:
        log.info("the page ended", exc_info=answering.exception())
        warn(f"{answering.exception()}. {WITHOUT_PAGE}")


async def _answer(store: Store, workspace: Workspace, listening: Listening) -> None:
    """Load the page, which takes a while, in a thread. Who connects meanwhile waits."""
    with contextlib.closing(listening):
        module = await asyncio.to_thread(importlib.import_module, "comfyui_agent.web.page_server")
        async with module.serving(store, workspace, listening):
            await asyncio.Event().wait()
