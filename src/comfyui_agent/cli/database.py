"""`e3 db`: bring the database up to date, check it, and let go of what dead agents hold."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import typer

from comfyui_agent.cli.audit import note_audit
from comfyui_agent.cli.printing import fail, print_json
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.domain.events import EventName

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace

app = typer.Typer(help="The database.", no_args_is_help=True, rich_markup_mode="rich")


@app.command()
def migrate(workspace: Folder = HERE, config: ConfigOption = "", database: DatabaseOption = "") -> None:
    """Make the database, or bring an older one to the version that this E3 knows.

    Every command does so when it opens the database; here it is done alone, and said.

    [bold]Examples[/bold]

    e3 db migrate
        Before agents of a new version start.
    """
    from comfyui_agent.store.errors import StoreError
    from comfyui_agent.store.opening import migrate_store

    place = workspace_at(workspace, database, config=config).database
    try:
        before, after = migrate_store(place)
    except StoreError as error:
        fail(str(error))
    done = "is up to date" if before == after else f"was brought from version {before} to {after}"
    typer.echo(f"{place} {done}{f' (version {after})' if before == after else ''}.")


@app.command()
def check(
    workspace: Folder = HERE, config: ConfigOption = "", database: DatabaseOption = "", as_json: AsJson = False
) -> None:
    """Check the database: its pages, its counts, leases that ran out, results that are gone, its write-ahead log.

    Exit 1 if something is wrong.

    [bold]Examples[/bold]

    e3 db check --json
        For a script.
    """
    asyncio.run(_check(workspace_at(workspace, database, config=config), as_json))


async def _check(workspace: Workspace, as_json: bool) -> None:
    from comfyui_agent.store.agent_lock import is_dead
    from comfyui_agent.store.checking import examine

    async with opened(workspace) as store:
        found = await examine(store, partial(is_dead, workspace.locks), workspace.root)
    if as_json:
        print_json([{"name": each.name, "fine": each.is_fine, "message": each.message} for each in found])
    else:
        for each in found:
            typer.echo(f"{'●' if each.is_fine else '△'} {each.name}: {each.message}")
    raise typer.Exit(0 if all(each.is_fine for each in found) else 1)


@app.command()
def recover(workspace: Folder = HERE, config: ConfigOption = "", database: DatabaseOption = "") -> None:
    """Requeue jobs whose lease ran out or whose agent is gone, now. Prompts at a server are still taken over.

    [bold]Examples[/bold]

    e3 db recover
        After a crash, if no agent runs that would do so by itself.
    """
    asyncio.run(_recover(workspace_at(workspace, database, config=config)))


async def _recover(workspace: Workspace) -> None:
    from comfyui_agent.store.agent_lock import is_dead

    async with opened(workspace) as store:
        count = await store.put_back_orphans(partial(is_dead, workspace.locks))
        await store.recount()
        await note_audit(store, EventName.AUDIT_DATABASE_RECOVER, message=f"{count:,} jobs")
    typer.echo(f"{count} jobs were let go and wait again." if count else "Nothing to recover: every lease is held.")
