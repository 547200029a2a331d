"""Jobs that a command names, and whether anyone works the queue off."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from comfyui_agent.batches import name_lookup
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.jobs import Job
from comfyui_agent.store.agent_lock import is_attended
from comfyui_agent.store.store import Store

NOBODY = "no agent runs here: start one with e3 run"


async def find_jobs(store: Store, names: Sequence[str]) -> list[Job]:
    """Each job once, in the order of the names; NoJob for the first name that no job has."""
    jobs = [await name_lookup.find_job(store, name) for name in names]
    return list({job.id: job for job in jobs}.values())


def say_if_nobody_works(workspace: Workspace) -> None:
    """Tell on stderr that no agent of this machine works the queue off."""
    if not is_attended(workspace.locks):
        typer.echo(f"e3: {NOBODY}", err=True)
