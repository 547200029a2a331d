"""The options that commands share, and opening the workspace and its store."""

from __future__ import annotations

import asyncio
import math
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
from comfyui_agent.cli.output import fail, warn
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.config.validation import Complaints
from comfyui_agent.files.connect import open_files
from comfyui_agent.files.port import FilesAway
from comfyui_agent.store.store import Store

if TYPE_CHECKING:  # with YAML, which no help needs
    from comfyui_agent.config.workspace import Workspace

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
Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="A ComfyUI to work with; give it several times for several."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Tell more about what happens.")]
Limit = Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")]
Wait = Annotated[bool, typer.Option("--wait", help="Follow it; if no agent runs, do the work here.")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The config_name of a job, or its id.", autocompletion=job_names)
]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME…", help="The config_name of each job, or its id.", autocompletion=job_names),
]

HERE = Path()
SHORT_WAIT = 2.0
"""Seconds to wait for a locked database by who only looks at it."""


def workspace_at(folder: Path, database: str = "", servers: list[str] | None = None, config: str = "") -> Workspace:
    """The workspace, with settings from its file, the environment and the command line."""
    from comfyui_agent.config.loader import load_workspace

    if not folder.is_dir():
        fail(f"there is no folder {folder}", code=2)
    try:
        workspace = load_workspace(folder, os.environ, config or None)
    except Complaints as error:
        fail(str(error), code=2)
    if database:
        url = database if "://" in database else str(Path(database).absolute())
        workspace = with_settings(workspace, "database", url=url)
    return with_servers(workspace, servers)


def with_servers(workspace: Workspace, servers: list[str] | None) -> Workspace:
    """The same workspace with other servers than its own, if some are given."""
    return with_settings(workspace, "comfyui", servers=tuple(servers), launch=()) if servers else workspace


def with_settings(workspace: Workspace, section: str, **values: object) -> Workspace:
    """The same workspace with other values in one section of its settings."""
    settings = workspace.settings
    changed = getattr(settings, section).model_copy(update=values)
    return replace(workspace, settings=settings.model_copy(update={section: changed}))


def check_files(workspace: Workspace) -> None:
    """BadLocation if results or input pictures can never be kept where the settings say. It asks an object store."""
    for location in workspace.elsewhere.values():
        try:
            open_files(location).check()
        except FilesAway as error:
            warn(f"{error.strerror}. What needs it waits")


def check_addresses(workspace: Workspace, *, are_given: bool) -> None:
    """Fails if the address of a server is none."""
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


def servers_of(workspace: Workspace) -> tuple[str, ...]:
    """The servers of a workspace, those that E3 launches among them. Fails if there is none yet."""
    from comfyui_agent.fleet.launch.state import server_urls

    return server_urls(workspace) or fail("no process of comfyui.launch was started yet: e3 comfyui up starts them")


@asynccontextmanager
async def opened(
    workspace: Workspace, *, create: bool = False, wait: float = math.inf, is_patient: bool = False
) -> AsyncIterator[Store]:
    """The store of a workspace, closed at the end. StoreError if it cannot be used.

    A locked database is waited for at most `wait` seconds; one that does not answer as long only if `is_patient`.
    """
    from comfyui_agent.store.connect import open_store  # with its driver, which not every command needs

    leaving = threading.Event()
    until = time.monotonic() + wait

    def give_up() -> bool:
        return leaving.is_set() or time.monotonic() > until

    opening = asyncio.ensure_future(
        asyncio.to_thread(open_store, workspace.database, create=create, is_patient=is_patient, give_up=give_up)
    )
    try:
        store = await asyncio.shield(opening)
    except asyncio.CancelledError:  # it may be waiting for a database that is locked
        leaving.set()
        await asyncio.gather(opening, return_exceptions=True)
        raise
    try:
        yield store
    finally:
        await store.close(timeout=0.5)
