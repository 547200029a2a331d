"""What the shell offers when Tab is pressed. It says nothing when anything goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import typer

MOST_OFFERED = 200


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs in the workspace that the line names so far."""
    with contextlib.suppress(Exception):
        return asyncio.run(_job_names(Path(context.params.get("workspace") or "."), incomplete))
    return []


async def _job_names(folder: Path, incomplete: str) -> list[str]:
    from comfyui_agent.config.loading import load_workspace
    from comfyui_agent.store.opening import open_store

    store = open_store(load_workspace(folder, os.environ).database, create=False)
    try:
        jobs = await store.jobs(limit=2000)
    finally:
        await store.close()
    return [job.config_name for job in jobs if job.config_name.startswith(incomplete)][:MOST_OFFERED]


def workflow_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.config.loading import load_workspace
    from comfyui_agent.config.workflows import Workflows

    with contextlib.suppress(Exception):
        workflows = Workflows(load_workspace(Path(context.params.get("workspace") or "."), os.environ))
        workflows.refresh()
        return [name for name in workflows.recipes if name.startswith(incomplete)]
    return []
