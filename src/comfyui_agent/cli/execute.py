"""`e3 execute`: work the queue off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from comfyui_agent.cli.printing import fail, log_for_people, on_terminal
from comfyui_agent.cli.running import run_until_signal
from comfyui_agent.cli.workspace import HERE, DatabaseOption, Folder, opened, workspace_at

if TYPE_CHECKING:
    from comfyui_agent.config.workspace import Workspace
    from comfyui_agent.domain.events import Event
    from comfyui_agent.engine.agent import Agent
    from comfyui_agent.store.store import Store


def execute(
    workspace: Folder = HERE,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="URL", help="A ComfyUI to work with; give it several times for several."),
    ] = None,
    database: DatabaseOption = "",
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when nothing is pending; exit 1 if a job failed meanwhile.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Tell more about what happens.")] = False,
) -> None:
    """Work the queue off: lease jobs, have ComfyUI render them, bring the results home.

    Ctrl-C and SIGTERM stop it within two seconds; what runs at a server goes on there, and the next start takes it
    over. Start it as often as you like on one database: nothing is rendered twice.

    [bold]Examples[/bold]

    e3 execute
        The ComfyUI on this machine, for ever.

    e3 execute --until-idle --server http://gpu1:8188 --server http://gpu2:8188
        Two servers, until everything is done.
    """
    log_for_people(verbose)
    run_until_signal(_execute(workspace_at(workspace, database, server), until_idle))


async def _execute(workspace: Workspace, until_idle: bool) -> int:
    from comfyui_agent.engine.agent import Agent

    async with opened(workspace, create=True) as store:
        try:
            agent = Agent(store, workspace)
        except ValueError as error:
            fail(str(error), code=2)
        except OSError as error:
            fail(f"no lock file can be made in {workspace.locks}: {error.strerror}")
        servers = ", ".join(agent.fleet.servers)
        typer.echo(f"Working off {workspace.database} with {servers}. Ctrl-C stops; nothing gets lost.")
        async with _shown(agent, store):
            failures = await agent.run(until_idle=until_idle)
        counts = await store.counts()
        typer.echo(f"{counts.done} done, {counts.failed} need attention, {counts.pending} pending.")
        return 1 if failures else 0


@contextlib.asynccontextmanager
async def _shown(agent: Agent, store: Store) -> AsyncIterator[None]:
    from comfyui_agent.cli.telling import QueueBoard

    if not on_terminal():
        agent.bus.subscribe(_print_line)
        yield
        return
    board = QueueBoard(agent, store)
    showing = asyncio.create_task(board.show())
    try:
        yield
    finally:
        showing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await showing


def _print_line(event: Event) -> None:
    from comfyui_agent.cli.telling import tell

    with contextlib.suppress(OSError):  # no room for a log, or nobody reads it: the work goes on
        typer.echo(tell(event))


def main() -> None:
    """`python -m comfyui_agent.execute`: the same as `e3 execute`."""
    import sys

    from comfyui_agent.cli.app import main as e3

    sys.argv[1:1] = ["execute"]
    e3()
