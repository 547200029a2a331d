"""`e3 doctor`: is everything there, and what to do if not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import typer

from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workspace import HERE, SHORT_WAIT, AsJson, ConfigOption, Folder, opened
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.server_states import StuckPrompt
from comfyui_agent.engine.delivery import deliver, failures, shown
from comfyui_agent.engine.health_checks import (
    look_at_disk,
    look_at_files,
    look_at_folders,
    look_at_job_files,
    look_at_servers,
    look_at_workflows,
)
from comfyui_agent.files.connect import missing_files
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.pools import OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import this_host
from comfyui_agent.store.connect import version_of
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.integrity import Finding, examine, look_at_jobs


def doctor(workspace: Folder = HERE, config: ConfigOption = "", as_json: AsJson = False) -> None:
    """Check configuration, folders, workflows, database, disk, servers, models and rejected files; say what to do.

    Nothing is changed. Exit 1 if something needs attention.
    """
    if not workspace.is_dir():
        fail(f"there is no folder {workspace}", code=2)
    raise typer.Exit(asyncio.run(_doctor(workspace, config, as_json)))


async def _doctor(folder: Path, config: str, as_json: bool) -> int:
    found = []
    async for each in _look(folder, config):
        found.append(each)
        if not as_json:
            typer.echo(one_line(f"{'●' if each.is_fine else '△'} {each.name}: {each.message}"))
    troubles = sum(not each.is_fine for each in found)
    if as_json:
        print_json([{"name": each.name, "fine": each.is_fine, "message": each.message} for each in found])
    else:
        attention = "1 thing needs" if troubles == 1 else f"{troubles} things need"
        typer.echo(f"\n{attention} attention." if troubles else "\nAll is well.")
    return 1 if troubles else 0


async def _look(folder: Path, config: str) -> AsyncIterator[Finding]:
    try:
        workspace = load_workspace(folder, os.environ, config or None)
    except Complaints as error:
        for complaint in error.found:
            yield Finding("configuration", False, str(complaint))
        return
    where = str(workspace.config) if workspace.config else "none, so the defaults hold: e3 init makes one"
    yield Finding("configuration", True, where)
    found, usable = look_at_workflows(workspace)
    for each in (*look_at_folders(workspace), *await OBJECTS.run(look_at_files, workspace), *found):
        yield each
    reasons: dict[str, str] = {}
    stuck: list[StuckPrompt] = []
    async for each in _look_at_database(workspace, reasons, stuck):
        yield each
    for each in look_at_job_files(workspace, reasons):
        yield each
    yield look_at_disk(workspace)
    if urls := workspace.settings.notify.urls:
        problems = failures(urls, await deliver(urls, None))
        yield Finding("notifications", not problems, "; ".join(problems) or f"go to {', '.join(map(shown, urls))}")
    if not server_urls(workspace):
        yield Finding("servers", False, "no process of comfyui.launch was started yet: e3 comfyui up starts them")
    try:
        async for each in look_at_servers(server_urls(workspace), usable, stuck):
            yield each
    except ValueError as error:
        yield Finding("servers", False, f"comfyui.api_base_url or comfyui.servers: {error}")


async def _look_at_database(
    workspace: Workspace, reasons: dict[str, str], stuck: list[StuckPrompt]
) -> AsyncIterator[Finding]:
    if workspace.database_file is not None and not workspace.database_file.exists():
        yield Finding("database", True, f"{workspace.database_name} is not there yet: e3 run makes it")
        return
    try:
        version, newest = await asyncio.to_thread(version_of, workspace.database)
        if version < newest:
            message = f"{workspace.database_name} has version {version}: the next start of E3 brings it to {newest}"
            yield Finding("database", True, message)
            return
        async with opened(workspace, wait=SHORT_WAIT) as store:
            yield Finding("database", True, f"{workspace.database_name}, version {version}")
            for each in await examine(store, this_host(), partial(missing_files, workspace.results)):
                yield each
            yield await look_at_jobs(store)
            reasons |= await store.run(ops.rejections)
            stuck += await store.run(ops.stuck_prompts)
    except StoreError as error:
        yield Finding("database", False, str(error))
