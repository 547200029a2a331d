"""What the shell offers when Tab is pressed; nothing if anything goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.store.store import Store

MOST_READ = 2_000
MOST_OFFERED = 200


def job_names(context: typer.Context, incomplete: str) -> list[str]:
    return _offer(lambda: asyncio.run(_read(context, _jobs)), incomplete)


def batch_names(context: typer.Context, incomplete: str) -> list[str]:
    """Ids of batches, the newest first."""
    return _offer(lambda: asyncio.run(_read(context, _batches)), incomplete)


def book_names(context: typer.Context, incomplete: str) -> list[str]:
    return _offer(lambda: asyncio.run(_read(context, _books)), incomplete)


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


async def _read(context: typer.Context, names: Callable[[Store], Awaitable[list[str]]]) -> list[str]:
    """Names from the database of the workspace that the line names so far."""
    from comfyui_agent.store.connect import open_store

    store = open_store(context.params.get("database") or _workspace(context).database, create=False)
    try:
        return await names(store)
    finally:
        await store.close()


async def _jobs(store: Store) -> list[str]:
    return [job.config_name for job in await store.run(ops.list_jobs, limit=MOST_READ)]


async def _batches(store: Store, kind: BatchKind | None = None) -> list[str]:
    return [batch.id for batch in await store.run(ops.newest_batches, kind=kind, limit=MOST_READ)]


async def _books(store: Store) -> list[str]:
    return await _batches(store, BatchKind.BOOK)


def _workspace(context: typer.Context) -> Workspace:
    from comfyui_agent.config.loader import load_workspace

    folder = Path(context.params.get("workspace") or ".")
    return load_workspace(folder, os.environ, context.params.get("config") or None)
