"""`e3 audit`: who asked for which change."""

from __future__ import annotations

from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail
from comfyui_agent.cli.workspace import Limit
from comfyui_agent.domain.events import AUDIT, Event
from comfyui_agent.domain.tokens import seconds_in
from comfyui_agent.store import operations as ops


@workspace_command()
async def audit(
    call: Invocation,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back, such as 12h or 7d.")] = "1d",
    actor: Annotated[str, typer.Option("--actor", metavar="TEXT", help="Only by whom this is a part of.")] = "",
    limit: Limit = 100,
) -> None:
    """Show who asked for which change, when, and from where; the newest last."""
    try:
        seconds = seconds_in(since)
    except ValueError as error:
        fail(f"--since {error}", code=2)
    async with call.opened() as store:
        found = await store.run(ops.audit_trail, seconds=seconds, actor=actor, most=limit)
    call.show_list(found[::-1], _line, "Nobody asked for a change in that time.")


def _line(event: Event) -> str:
    subject = event.config_name or event.batch_id or event.server or (f"job {event.job_id}" if event.job_id else "")
    where = f"from {event.address}" if event.address else ""
    what = event.name.removeprefix(AUDIT)
    return "  ".join(filter(None, (event.timestamp[:19], event.actor, where, what, subject, event.message)))
