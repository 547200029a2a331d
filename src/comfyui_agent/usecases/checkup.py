"""Is everything there, and what to do if not: folders, workflows, database, disk, servers. Nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

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
from comfyui_agent.pools import FILES, OBJECTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import this_host
from comfyui_agent.store.connect import version_of
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.integrity import Finding, examine, look_at_jobs
from comfyui_agent.store.store import Store

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]


async def check_workspace(workspace: Workspace, open_store: OpenStore) -> AsyncIterator[Finding]:
    """Look at everything in a workspace, one thing after the other."""
    where = str(workspace.config) if workspace.config else "none, so the defaults hold: e3 init makes one"
    yield Finding("configuration", True, where)
    found, usable = await FILES.run(look_at_workflows, workspace)
    folders = await FILES.run(look_at_folders, workspace)
    for each in (*folders, *await OBJECTS.run(look_at_files, workspace), *found):
        yield each
    reasons: dict[str, str] = {}
    stuck: list[StuckPrompt] = []
    async for each in _look_at_database(workspace, open_store, reasons, stuck):
        yield each
    for each in await FILES.run(look_at_job_files, workspace, reasons):
        yield each
    yield await FILES.run(look_at_disk, workspace)
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
    workspace: Workspace, open_store: OpenStore, reasons: dict[str, str], stuck: list[StuckPrompt]
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
        async with open_store() as store:
            yield Finding("database", True, f"{workspace.database_name}, version {version}")
            for each in await examine(store, this_host(), partial(missing_files, workspace.results)):
                yield each
            yield await look_at_jobs(store)
            reasons |= await store.run(ops.rejections)
            stuck += await store.run(ops.stuck_prompts)
    except StoreError as error:
        yield Finding("database", False, str(error))
