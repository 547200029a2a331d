"""`e3 db`: bring the database up to date, check it, let go of what dead agents hold, give back space, keep a copy."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, show_errors, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workspace import AsJson, opened
from comfyui_agent.config.workspace import Workspace, shown_database
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted, megabytes
from comfyui_agent.domain.tokens import seconds_in
from comfyui_agent.files.connect import missing_files
from comfyui_agent.store import operations as ops
from comfyui_agent.store.agent_lock import AgentLock, living, this_host
from comfyui_agent.store.connect import backup_store, compact_store, migrate_store, open_store, open_tables
from comfyui_agent.store.copying import copy_tables, refuse_living
from comfyui_agent.store.integrity import examine
from comfyui_agent.store.liveness import bury_dead

Show = Callable[[str], None]

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
    from comfyui_agent.engine.retention import NEW_SECONDS, Ages, Pruned, prune_files  # not for those who check

    place = call.workspace
    if place.database_file is not None and not place.database_file.is_file():
        fail(f"there is no database {place.database_name}: nothing to compact")
    lock = await _lock_alone(place)
    try:
        with _progress("Looking for input pictures that no job uses…"):
            async with opened(place) as store:
                unused = Pruned()
                await prune_files(store, place, Ages(inputs=NEW_SECONDS), unused)
        with _progress("Writing the database anew…"):
            found = compact_store(place.database)
    finally:
        lock.release()
    if call.as_json:
        print_json({**asdict(found), "pictures": unused.inputs, "picture_bytes": unused.input_bytes})
        return
    sizes = f"{megabytes(found.bytes_before)} before, {megabytes(found.bytes_after)} now"
    pictures = f"{counted(unused.inputs, 'input picture')} ({megabytes(unused.input_bytes)})"
    removed = f"{counted(found.templates, 'template')}, {pictures}"
    typer.echo(f"{place.database_name}: {sizes}. Removed what no job used: {removed}.")


@workspace_command(app)
async def backup(
    call: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy, an SQLite file.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a copy of the database as it is now, while agents go on working. It is checked before it gets its name.

    Results and input pictures are files of their own and are not in it.
    """
    with _progress("") as say:
        told: Callable[[float], None] = lambda share: say(f"Copying the database… {share:.0%}")  # noqa: E731
        rows = backup_store(call.workspace.database, file, force=force, progress=told)
    size = file.stat().st_size
    words = f"{file}: {counted(rows, 'row')} of {call.workspace.database_name} in {megabytes(size)}, checked."
    call.show({"file": str(file), "rows": rows, "bytes": size}, words)


@workspace_command(app)
async def prune(
    call: Invocation,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="What ended longer ago, such as 30d, 12h or 90m.")],
    keep_files: Annotated[bool, typer.Option("--keep-files", help="Leave all files on disk.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove old jobs that have ended, with their runs, events and results; batches only as a whole.

    Whatever is open stays, and all of its batch. Agents may go on working. Input pictures that no job uses any more and
    thumbnails that nobody has looked at for so long go, too. The audit trail stays.
    """
    from comfyui_agent.engine import retention

    try:
        seconds = seconds_in(older_than)
    except ValueError as error:
        fail(f"--older-than {error}", code=2)
    files = {} if keep_files else {"inputs": retention.NEW_SECONDS, "thumbnails": seconds}
    ages = retention.Ages(jobs=seconds, events=seconds, keep_files=keep_files, **files)
    async with call.opened() as store:
        if dry_run:
            done = await retention.preview(store, call.workspace, ages)
        else:
            with _progress("Removing what is old…"):
                done = await retention.prune(store, call.workspace, ages, asyncio.sleep, retention.PAUSE)
            await call.actor.audit(store, EventName.AUDIT_DATABASE_PRUNE, message=f"older than {older_than}: {done}")
    call.show({**asdict(done), "dry_run": dry_run}, f"{'Would remove' if dry_run else 'Removed'}: {done}.")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A file, sqlite:///… or postgresql://…")],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; empty, or not there yet.")],
    as_json: AsJson = False,
) -> None:
    """Copy a whole database to another place, ids and all, and compare every table. Stop what works with it first.

    Interrupted, the same command goes on where it was. Nothing opens the copy before it is whole. FROM stays as it is.
    """
    raise typer.Exit(asyncio.run(show_errors(_copy(source, target, as_json))) or 0)


async def _copy(source: str, target: str, as_json: bool) -> int:
    """0 if both are the same."""
    await _refuse_living(source)
    migrate_store(target)
    with _progress("") as say, closing(open_tables(source)) as there, closing(open_tables(target)) as here:
        found = copy_tables(there, here, lambda what, rows: say(f"{what}: {counted(rows, 'row')}"))
    wrong = [each.name for each in found if not each.is_same]
    if as_json:
        print_json([{**asdict(each), "same": each.is_same} for each in found])
    else:
        for each in found:
            verdict = "same" if each.is_same else f"DIFFERS: {each.rows_there:,} {each.digest_there[:12]} in the copy"
            typer.echo(f"{each.name:20} {each.rows:>12,}  {each.digest[:12]}  {verdict}")
    if wrong:
        fail(f"{', '.join(wrong)} changed while they were copied: remove {shown_database(target)}, then copy again")
    if not as_json:
        typer.echo(one_line(f"{shown_database(target)} is whole. Name it in database.url, and do not use the old one."))
    return 0


async def _refuse_living(place: str) -> None:
    store = open_store(place, create=False)
    try:
        await refuse_living(store, this_host(), shown_database(place))
    finally:
        await store.close()


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


@contextmanager
def _progress(message: str) -> Iterator[Show]:
    """A spinner on a terminal, whose text can be changed; nothing elsewhere. Ctrl-C ends the work at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # asyncio's waits for the next await
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # not for those who check

    with Console(stderr=True).status(message) as status:
        yield status.update
