"""What the shell offers when Tab is pressed. It says nothing when anything goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace

MOST_OFFERED = 200


def _workspace(context: typer.Context) -> Workspace:
    """The workspace that the line names so far."""
    from comfyui_agent.config.loading import load_workspace

    folder = Path(context.params.get("workspace") or ".")
    return load_workspace(folder, os.environ, context.params.get("config") or None)


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs in the workspace that the line names so far."""
    with contextlib.suppress(Exception):
        return asyncio.run(_job_names(context, incomplete))
    return []


async def _job_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.store.opening import open_store

    database = context.params.get("database") or _workspace(context).database
    store = open_store(database, create=False)
    try:
        jobs = await store.jobs(limit=2000)
    finally:
        await store.close()
    return [job.config_name for job in jobs if job.config_name.startswith(incomplete)][:MOST_OFFERED]


def workflow_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.config.workflows import Workflows

    with contextlib.suppress(Exception):
        workflows = Workflows(_workspace(context))
        workflows.refresh()
        return [name for name in workflows.recipes if name.startswith(incomplete)]
    return []
