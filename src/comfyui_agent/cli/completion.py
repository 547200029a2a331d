"""What the shell offers when Tab is pressed; nothing if anything goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import Operation

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace

MOST_READ = 2_000
MOST_OFFERED = 200


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    return _offer(lambda: [job.config_name for job in asyncio.run(_read(context, ops.list_jobs))], incomplete)


def batch_names(context: typer.Context, incomplete: str) -> list[str]:
    return _offer(lambda: [each.id for each in asyncio.run(_read(context, ops.newest_batches))], incomplete)


def book_names(context: typer.Context, incomplete: str) -> list[str]:
    kind = BatchKind.BOOK
    return _offer(lambda: [each.id for each in asyncio.run(_read(context, ops.newest_batches, kind=kind))], incomplete)


def workflow_names(context: typer.Context, incomplete: str) -> list[str]:
    from comfyui_agent.config.workflows import Workflows

    def read() -> list[str]:
        workflows = Workflows(_workspace(context))
        workflows.refresh()
        return list(workflows.recipes)

    return _offer(read, incomplete)


def _offer(read: Callable[[], list[str]], incomplete: str) -> list[str]:
    with contextlib.suppress(Exception):
        return [name for name in read() if name.startswith(incomplete)][:MOST_OFFERED]
    return []


async def _read(context: typer.Context, query: Operation[..., list[Any]], **choice: Any) -> list[Any]:
    """Rows from the database of the workspace that the line names so far."""
    from comfyui_agent.store.connect import open_store

    store = open_store(context.params.get("database") or _workspace(context).database, create=False)
    try:
        return await store.run(query, limit=MOST_READ, **choice)
    finally:
        await store.close()


def _workspace(context: typer.Context) -> Workspace:
    from comfyui_agent.config.loader import load_workspace

    folder = Path(context.params.get("workspace") or ".")
    return load_workspace(folder, os.environ, context.params.get("config") or None)
