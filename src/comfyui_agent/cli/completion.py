"""What the shell offers when Tab is pressed. It says nothing when anything goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.batches import BatchKind
    from comfyui_agent.store.store import Store

MOST_OFFERED = 200


def _workspace(context: typer.Context) -> Workspace:
    """The workspace that the line names so far."""
    from comfyui_agent.config.loader import load_workspace

    folder = Path(context.params.get("workspace") or ".")
    return load_workspace(folder, os.environ, context.params.get("config") or None)


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    """Names of jobs in the workspace that the line names so far."""
    with contextlib.suppress(Exception):
        return asyncio.run(_job_names(context, incomplete))
    return []


async def _job_names(context: typer.Context, incomplete: str) -> list[str]:
    async with _opened(context) as store:
        jobs = await store.run(ops.list_jobs, limit=2000)
    return [job.config_name for job in jobs if job.config_name.startswith(incomplete)][:MOST_OFFERED]


def batch_names(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of batches, the newest first."""
    with contextlib.suppress(Exception):
        return asyncio.run(_batch_names(context, incomplete))
    return []


def book_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.domain.batches import BatchKind

    with contextlib.suppress(Exception):
        return asyncio.run(_batch_names(context, incomplete, BatchKind.BOOK))
    return []


async def _batch_names(context: typer.Context, incomplete: str, kind: BatchKind | None = None) -> list[str]:
    async with _opened(context) as store:
        batches = await store.run(ops.newest_batches, kind=kind, limit=2000)
    return [batch.id for batch in batches if batch.id.startswith(incomplete)][:MOST_OFFERED]


@contextlib.asynccontextmanager
async def _opened(context: typer.Context) -> AsyncIterator[Store]:
    from comfyui_agent.store.connect import open_store

    store = open_store(context.params.get("database") or _workspace(context).database, create=False)
    try:
        yield store
    finally:
        await store.close()


def workflow_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.config.workflows import Workflows

    with contextlib.suppress(Exception):
        workflows = Workflows(_workspace(context))
        workflows.refresh()
        return [name for name in workflows.recipes if name.startswith(incomplete)]
    return []
