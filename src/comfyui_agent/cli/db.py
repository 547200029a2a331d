"""`e3 db`: bring the database up to date, check it, let go of what dead agents hold, give back space."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workspace import opened
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted, megabytes
from comfyui_agent.files.connect import missing_files
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock, living, this_host
from comfyui_agent.store.connect import compact_store, migrate_store
from comfyui_agent.store.integrity import examine
from comfyui_agent.store.liveness import bury_dead

NEW_SECONDS = 3600.0

WITHOUT_JSON = ("workspace", "config", "database")

app = command_group("The database.")


@workspace_command(app, options=WITHOUT_JSON)
async def migrate(call: Invocation) -> None:
    """Make the database, or bring an older one to the version that this E3 knows.

    Every command does so when it opens the database; here it is done alone, and said.
    """
    before, after = migrate_store(call.workspace.database)
    done = "is up to date" if before == after else f"was brought from version {before} to {after}"
    typer.echo(f"{call.workspace.database_name} {done}{f' (version {after})' if before == after else ''}.")


@workspace_command(app)
async def check(call: Invocation) -> int:
    """Check the database: its pages, counts, leases that ran out, results that are gone, its write-ahead log, sizes.

    Exit 1 if something is wrong.
    """
    async with call.opened() as store:
        found = await examine(store, this_host(), partial(missing_files, call.workspace.results))
    if call.as_json:
        print_json([{"name": each.name, "fine": each.is_fine, "message": each.message} for each in found])
    else:
        for each in found:
            typer.echo(one_line(f"{'●' if each.is_fine else '△'} {each.name}: {each.message}"))
    return 0 if all(each.is_fine for each in found) else 1


@workspace_command(app, options=WITHOUT_JSON)
async def recover(call: Invocation) -> None:
    """Requeue jobs whose lease ran out or whose agent is gone, now. Prompts at a server are still taken over."""
    async with call.opened() as store:
        await bury_dead(store, this_host())
        count = await store.run(ops.put_back_orphans, this_host())
        await store.run(ops.recount)
        await call.actor.audit(store, EventName.AUDIT_DATABASE_RECOVER, message=counted(count, "job"))
    jobs = counted(count, "job was let go and waits", "jobs were let go and wait")
    typer.echo(f"{jobs} again." if count else "Nothing to recover: every lease is held.")


@workspace_command(app)
async def compact(call: Invocation) -> None:
    """Give back space: free pages of the database, and templates and input pictures that no job uses any more.

    The file is written anew, and nothing else can write meanwhile. So this is for when no agent and no page runs; stop
    them first. Nothing of the jobs is changed.
    """
    place = call.workspace
    if place.database_file is not None and not place.database_file.is_file():
        fail(f"there is no database {place.database_name}: nothing to compact")
    lock = await _lock_alone(place)
    try:
        with _progress("Looking for input pictures that no job uses…"):
            files, file_bytes = await _remove_unused(place)
        with _progress("Writing the database anew…"):
            found = compact_store(place.database)
    finally:
        lock.release()
    if call.as_json:
        print_json({**asdict(found), "pictures": files, "picture_bytes": file_bytes})
        return
    sizes = f"{megabytes(found.bytes_before)} before, {megabytes(found.bytes_after)} now"
    removed = f"{counted(found.templates, 'template')}, {counted(files, 'input picture')} ({megabytes(file_bytes)})"
    typer.echo(f"{place.database_name}: {sizes}. Removed what no job used: {removed}.")


async def _lock_alone(workspace: Workspace) -> AgentLock:
    """A lock that shows others that the database is in use. Fails if a process of any workspace uses it."""
    others = living(workspace.locks)
    if not others:
        async with opened(workspace) as store:
            await bury_dead(store, this_host())
            others = await store.run(ops.living_agents, this_host())
    if others:
        fail(f"the database is in use ({', '.join(others[:3])}): stop e3 run, e3 serve and the like, then compact it")
    return AgentLock(workspace.locks, is_part=True)


async def _remove_unused(workspace: Workspace) -> tuple[int, int]:
    """Remove kept input files that no job names; how many, and their bytes. New files stay: their job may come."""
    async with opened(workspace) as store:
        used = await store.run(ops.kept_pictures)
    count = size = 0
    for file in sorted(workspace.kept_inputs.glob("*")):
        found = file.stat()
        if file.is_file() and file.name not in used and time.time() - found.st_mtime > NEW_SECONDS:
            file.unlink()
            count, size = count + 1, size + found.st_size
    return count, size


def _progress(message: str) -> AbstractContextManager[object]:
    """A spinner on a terminal, nothing elsewhere."""
    from rich.console import Console  # not for those who check

    return Console(stderr=True).status(message) if sys.stderr.isatty() else nullcontext()
