"""`e3 audit`: who asked for which change; and the rows that commands add to it."""

from __future__ import annotations

import asyncio
import getpass
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, DatabaseOption, Folder, opened, workspace_at
from comfyui_agent.domain.events import AUDIT, Event, EventName
from comfyui_agent.domain.tokens import seconds_in
from comfyui_agent.store import operations as ops

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.store.store import Store


def audit(
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 12h or 7d.")] = "1d",
    actor: Annotated[str, typer.Option("--actor", metavar="TEXT", help="Only by whom this is a part of.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = 100,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    """Show who asked for which change, when, and from where; the newest last.

    [bold]Examples[/bold]

    e3 audit --since 7d --actor studio
        What the token studio was used for this week.

    e3 audit --actor cli --json
        What was done on the command line, for a script.
    """
    try:
        seconds = seconds_in(since)
    except ValueError as error:
        fail(f"--since {error}", code=2)
    asyncio.run(_audit(workspace_at(workspace, database, config=config), seconds, actor, limit, as_json))


async def _audit(workspace: Workspace, seconds: int, actor: str, limit: int, as_json: bool) -> None:
    async with opened(workspace) as store:
        found = await store.run(ops.audit_trail, seconds=seconds, actor=actor, most=limit)
    found.reverse()
    if as_json:
        print_json([event.as_json() for event in found])
        return
    for event in found:
        typer.echo(_line(event))
    if not found:
        typer.echo("Nobody asked for a change in that time.")


def _line(event: Event) -> str:
    subject = event.config_name or event.batch_id or event.server or (f"job {event.job_id}" if event.job_id else "")
    where = f"from {event.address}" if event.address else ""
    parts = [
        event.timestamp[:19],
        event.actor or "",
        where,
        event.name.removeprefix(AUDIT),
        subject,
        event.message or "",
    ]
    return one_line("  ".join(part for part in parts if part))


async def note_audit(store: Store, event: EventName, **facts: Any) -> None:
    """Note what a command did. What was done stays done where this fails."""
    from comfyui_agent.store.errors import StoreError

    try:
        await store.run(ops.add_event, Event(event, actor=f"cli ({_user()})", **facts))
    except StoreError as error:
        typer.echo(f"e3: done, but it is missing in the audit trail: {error}", err=True)


def _user() -> str:
    """Whoever runs this: by what the system says, not by what the environment does."""
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):  # Windows, or a container whose user has no name
        try:
            return getpass.getuser()
        except (OSError, KeyError, ImportError):
            return "unknown"
