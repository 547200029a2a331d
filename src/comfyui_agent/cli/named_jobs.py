"""Jobs and batches that a command names; one line if there is none, and whether anyone works them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from comfyui_agent.batches import name_lookup
from comfyui_agent.cli.output import fail

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.batches import Batch, BatchKind
    from comfyui_agent.domain.jobs import Job
    from comfyui_agent.store.store import Store

NOBODY = "no agent runs here: start one with e3 run"


async def find_jobs(store: Store, names: Sequence[str]) -> list[Job]:
    """Each job once, in the order of the names."""
    found: dict[int, Job] = {}
    for name in names:
        try:
            job = await name_lookup.find_job(store, name)
        except name_lookup.NoJob as error:
            fail(str(error))
        found[job.id] = job
    return list(found.values())


async def find_batch(store: Store, name: str, kind: BatchKind | None = None) -> Batch:
    """A batch by its id, or by its name if only one has it."""
    try:
        return await name_lookup.find_batch(store, name, kind)
    except name_lookup.NoBatch as error:
        fail(str(error))


def say_if_nobody_works(workspace: Workspace) -> None:
    """Tell on stderr that no agent of this machine works the queue off."""
    from comfyui_agent.store.agent_lock import is_attended

    if not is_attended(workspace.locks):
        typer.echo(f"e3: {NOBODY}", err=True)
