"""`e3 servers`: what the ComfyUI servers are and do, and taking one out of work."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from comfyui_agent.cli.actor import terminal_actor
from comfyui_agent.cli.invocation import SHARED, with_options
from comfyui_agent.cli.output import fail, on_terminal, print_json
from comfyui_agent.cli.server_table import line_of, print_table
from comfyui_agent.cli.workspace import (
    HERE,
    AsJson,
    ConfigOption,
    DatabaseOption,
    Folder,
    open_soon,
    opened,
    workspace_at,
)
from comfyui_agent.comfy.server_names import NoServer, Unnamed, address_of, find_server
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.server_states import ServerState, StuckPrompt
from comfyui_agent.engine.server_reports import look_at
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.usecases.servers import ChangedServer, ServerChange, change_server, known_servers

USAGE = 2

app = typer.Typer(
    add_completion=False,
    help="Look at ComfyUI servers, and take one out of work.\n\nWithout a command: the same as [bold]ls[/bold].",
    invoke_without_command=True,
    rich_markup_mode="rich",
)

Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="A server, else those of the workspace; several times for several."),
]
ServerName = Annotated[
    str, typer.Argument(metavar="NAME", help="The server as e3 servers shows it, or a part that no other has.")
]


@dataclass(frozen=True)
class Asked:
    """The options that may stand before the command or after it."""

    servers: tuple[str, ...]
    folder: Path
    config: str
    database: str
    as_json: bool

    @property
    def workspace(self) -> Workspace:
        return workspace_at(self.folder, self.database, list(self.servers), self.config)

    def after(self, before: Asked) -> Asked:
        """These options and those before the command. These count where both are given."""
        return Asked(
            (*before.servers, *self.servers),
            before.folder if self.folder == HERE else self.folder,
            self.config or before.config,
            self.database or before.database,
            self.as_json or before.as_json,
        )


@app.callback()
def servers(
    context: typer.Context,
    server: Servers = None,
    workspace: Folder = HERE,
    config: ConfigOption = "",
    database: DatabaseOption = "",
    as_json: AsJson = False,
) -> None:
    context.obj = Asked(tuple(server or ()), workspace, config, database, as_json)
    if context.invoked_subcommand is None:
        asyncio.run(_show(context.obj))


def _server_command(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command of an async function that takes an Asked and its own options."""

    def command(
        context: typer.Context,
        server: list[str] | None,
        workspace: Path,
        config: str,
        database: str,
        as_json: bool,
        **options: Any,
    ) -> None:
        asked = Asked(tuple(server or ()), workspace, config, database, as_json)
        asyncio.run(work(asked.after(context.obj), **options))

    shared = {"context": (typer.Context, inspect.Parameter.empty), "server": (Servers, None), **SHARED}
    return app.command()(with_options(command, work, shared))


@_server_command
async def ls(asked: Asked) -> None:
    """Show state, version, devices, memory and queue of each server.

    [bold]Examples[/bold]

    e3 servers
        Those of the workspace, or the ComfyUI on this machine.

    e3 servers ls --server http://gpu1:8188 --server http://gpu2:8188 --json
        Two others, for a script.
    """
    await _show(asked)


@_server_command
async def pause(asked: Asked, name: ServerName) -> None:
    """Give a server no new prompts. What it has runs on there and is brought home.

    [bold]Examples[/bold]

    e3 servers pause gpu2:8188
        Until e3 servers resume gpu2:8188, whoever starts agents.

    e3 servers pause gpu2 -C night --json
        By a part of its name, for a script.
    """
    await _change(asked, name, ServerChange.PAUSE)


@_server_command
async def drain(asked: Asked, name: ServerName) -> None:
    """Empty a server: it gets no new prompts, what waits there goes elsewhere, what runs there finishes.

    Once nothing is there, e3 servers shows it as drained, and it can be switched off.

    [bold]Examples[/bold]

    e3 servers drain gpu2:8188
        Before it is updated. e3 servers resume gpu2:8188 ends that.

    e3 servers drain gpu2 --json
        By a part of its name, for a script.
    """
    await _change(asked, name, ServerChange.DRAIN)


@_server_command
async def resume(asked: Asked, name: ServerName) -> None:
    """Put a server back to work that was paused or drained.

    [bold]Examples[/bold]

    e3 servers resume gpu2:8188
        It gets prompts again at once.

    e3 servers resume gpu2 --json
        By a part of its name, for a script.
    """
    await _change(asked, name, ServerChange.RESUME)


async def _change(asked: Asked, name: str, change: ServerChange) -> None:
    workspace = asked.workspace
    _check_addresses(workspace)
    async with opened(workspace) as store:
        try:
            url = find_server(name, await known_servers(store, workspace))
        except Unnamed as error:
            fail(str(error), code=USAGE)
        except NoServer as error:
            fail(str(error))
        changed = await change_server(store, terminal_actor(), url, change)
    if asked.as_json:
        print_json(changed.as_json())
    else:
        typer.echo(_sentence(changed))


def _check_addresses(workspace: Workspace) -> None:
    for url in workspace.settings.comfyui.urls:
        try:
            address_of(url)
        except ValueError as error:
            fail(str(error), code=USAGE)


def _sentence(changed: ChangedServer) -> str:
    name = changed.name
    match changed.state:
        case None:
            return f"{name} is back at work."
        case ServerState.PAUSED:
            return f"{name} is paused: it gets nothing new, what it has is brought home. Undo: e3 servers resume {name}"
        case ServerState.DRAINING:
            return f"{name} is draining: what waits there goes elsewhere, what runs there finishes. See: e3 servers"
        case ServerState.DRAINED:
            return f"{name} is drained: nothing of this queue is there. Undo: e3 servers resume {name}"


async def _show(asked: Asked) -> None:
    workspace = asked.workspace
    _check_addresses(workspace)
    looks = asyncio.gather(*(look_at(url) for url in workspace.settings.comfyui.urls))
    out_of_work, stuck = await _states_in(workspace)
    reports = [report.judged(out_of_work, stuck) for report in await looks]
    if asked.as_json:
        print_json([report.as_json() for report in reports])
    elif on_terminal():
        print_table(reports)
    else:
        widths = max(len(report.name) for report in reports), max(4, *(len(report.state) for report in reports))
        for report in reports:
            typer.echo(line_of(report, *widths))


async def _states_in(workspace: Workspace) -> tuple[dict[str, ServerState], list[StuckPrompt]]:
    """Which servers are out of work or stuck; none if the database cannot be read."""
    with contextlib.suppress(StoreError):
        store = await open_soon(workspace)
        try:
            out_of_work = {each.server: each.halt for each in await store.run(ops.halted_servers)}
            return out_of_work, await store.run(ops.stuck_prompts)
        finally:
            await store.close(timeout=0.5)
    return {}, []
