"""The options that commands share, and opening the workspace and its store."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.completion import job_names
from comfyui_agent.cli.output import fail

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.store.store import Store

Folder = Annotated[
    Path, typer.Option("-C", "--workspace", metavar="DIR", help="The workspace; else the current folder.")
]
ConfigOption = Annotated[
    str,
    typer.Option("--config", metavar="FILE", help="The configuration; else config/global_config.yaml."),
]
DatabaseOption = Annotated[
    str,
    typer.Option("--database", metavar="FILE", help="The database; else database/comfyui_agent.db in the workspace."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The config_name of a job, or its id.", autocompletion=job_names)
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="The config_name of each job, or its id.", autocompletion=job_names),
]

HERE = Path()
LOOK_SECONDS = 2.0


def workspace_at(folder: Path, database: str = "", servers: list[str] | None = None, config: str = "") -> Workspace:
    """The workspace, with settings from its file, the environment and the command line."""
    from comfyui_agent.config.loader import load_workspace
    from comfyui_agent.config.validation import Complaints

    if not folder.is_dir():
        fail(f"there is no folder {folder}", code=2)
    try:
        workspace = load_workspace(folder, os.environ, config or None)
    except Complaints as error:
        fail(str(error), code=2)
    settings = workspace.settings
    if database:
        place = database if "://" in database else str(Path(database).absolute())
        settings = settings.model_copy(update={"database": settings.database.model_copy(update={"url": place})})
    if servers:
        comfyui = settings.comfyui.model_copy(update={"servers": tuple(servers)})
        settings = settings.model_copy(update={"comfyui": comfyui})
    return replace(workspace, settings=settings)


def check_addresses(workspace: Workspace, *, are_given: bool) -> None:
    """Fails if the address of a server is none."""
    from comfyui_agent.comfy.address import ServerAddress

    comfyui = workspace.settings.comfyui
    key = "--server" if are_given else "comfyui.servers" if comfyui.servers else "comfyui.api_base_url"
    variable = f"E3_{key.upper().replace('.', '__')}"
    origin = variable if variable in os.environ else workspace.config or "the defaults"
    where = "" if are_given else f"{origin}: "
    for url in comfyui.urls:
        try:
            ServerAddress.parse(url)
        except ValueError as error:
            fail(f"{where}{key}: {error}", code=2)


async def open_soon(workspace: Workspace) -> Store:
    """The store of a workspace, to look at. It is not made, and a locked one is waited for only shortly."""
    from comfyui_agent.store.connect import open_store

    until = time.monotonic() + LOOK_SECONDS
    return await asyncio.to_thread(
        open_store, workspace.database, create=False, give_up=lambda: time.monotonic() > until
    )


@asynccontextmanager
async def opened(workspace: Workspace, *, create: bool = False) -> AsyncIterator[Store]:
    """The store of a workspace, closed at the end. Fails if the database cannot be used."""
    from comfyui_agent.store.connect import open_store
    from comfyui_agent.store.errors import StoreError

    leaving = threading.Event()
    opening = asyncio.ensure_future(
        asyncio.to_thread(open_store, workspace.database, create=create, give_up=leaving.is_set)
    )
    try:
        store = await asyncio.shield(opening)
    except StoreError as error:
        fail(str(error))
    except asyncio.CancelledError:  # it may be waiting for a database that is locked
        leaving.set()
        await asyncio.gather(opening, return_exceptions=True)
        raise
    try:
        yield store
    except StoreError as error:
        fail(str(error))
    finally:
        await store.close(timeout=0.5)
