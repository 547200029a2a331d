"""`e3 servers`: what the ComfyUI servers are and do, and taking one out of work."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from comfyui_agent.batches.name_lookup import find_job
from comfyui_agent.cli.invocation import SHARED, USAGE, USUAL, Invocation, show_errors, with_options
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json
from comfyui_agent.cli.workspace import SHORT_WAIT, opened, servers_of, workspace_at
from comfyui_agent.comfy.address import NoServer, Unnamed, address_of, find_server, name_of
from comfyui_agent.domain.badges import SERVER_MARKS
from comfyui_agent.domain.server_states import STUCK_REMEDY, ServerState, ServerUse
from comfyui_agent.engine.server_reports import ServerReport, look_at
from comfyui_agent.engine.tuner import tuning_lines
from comfyui_agent.store.errors import StoreError
from comfyui_agent.usecases import servers as usecases
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.servers import ServerChange
from comfyui_agent.usecases.whereabouts import find_whereabouts

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
OPTIONS = {"server": (Servers, None), **{name: SHARED[name] for name in USUAL}}
WITH_CONTEXT = {"context": (typer.Context, inspect.Parameter.empty), **OPTIONS}
CHANGED = {
    None: "{name} is back at work.",
    ServerState.PAUSED: "{name} is paused: it gets nothing new, what it has is brought home. "
    "Undo: e3 servers resume {name}",
    ServerState.DRAINING: "{name} is draining: what waits there goes elsewhere, what runs there finishes. "
    "See: e3 servers",
    ServerState.DRAINED: "{name} is drained: nothing of this queue is there. Undo: e3 servers resume {name}",
}


def _invocation(options: Mapping[str, Any]) -> Invocation:
    folder = options["workspace"]
    workspace = workspace_at(folder, options["database"], options["server"], options["config"])
    for url in workspace.settings.comfyui.urls:
        try:
            address_of(url)
        except ValueError as error:
            fail(str(error), code=USAGE)
    return Invocation(folder, workspace, options["as_json"])


def _server_command(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a command whose options may stand before it or after it. Those after it count where both are given."""

    def command(context: typer.Context, **values: Any) -> None:
        before: Mapping[str, Any] = context.parent.params if context.parent else {}
        given = {name: values.pop(name) for name in OPTIONS}
        options = {name: before[name] if value == OPTIONS[name][1] else value for name, value in given.items()}
        options["server"] = [*before["server"], *(given["server"] or ())]
        asyncio.run(show_errors(work(_invocation(options), **values)))

    return app.command()(with_options(command, work, WITH_CONTEXT))


@_server_command
async def ls(call: Invocation) -> None:
    """Show state, version, devices, memory and queue of each server."""
    await _show(call)


@_server_command
async def pause(call: Invocation, name: ServerName) -> None:
    """Give a server no new prompts. What it has runs on there and is brought home."""
    await _change(call, name, ServerChange.PAUSE)


@_server_command
async def drain(call: Invocation, name: ServerName) -> None:
    """Empty a server: it gets no new prompts, what waits there goes elsewhere, what runs there finishes.

    Once nothing is there, e3 servers shows it as drained, and it can be switched off.
    """
    await _change(call, name, ServerChange.DRAIN)


@_server_command
async def resume(call: Invocation, name: ServerName) -> None:
    """Put a server back to work that was paused or drained."""
    await _change(call, name, ServerChange.RESUME)


@_server_command
async def explain(
    call: Invocation, job: Annotated[str, typer.Argument(metavar="JOB", help="The name of a job, or its id.")]
) -> None:
    """Say why a job runs where it does or why it waits, and for one that may run what each server means to it."""
    async with call.opened() as store:
        named = await find_job(store, job)
        found = await find_whereabouts(store, Intake(call.workspace), named)
    if call.as_json:
        print_json(asdict(found))
        return
    typer.echo(one_line(f"{named.config_name} {found.sentence}."))
    for each in found.servers:
        typer.echo(one_line(f"{name_of(each.url)}: {each.explanation}"))


async def _change(call: Invocation, name: str, change: ServerChange) -> None:
    async with call.opened() as store:
        try:
            url = find_server(name, await usecases.known_servers(store, call.workspace))
        except NoServer as error:
            fail(str(error), code=USAGE if isinstance(error, Unnamed) else 1)
        changed = await usecases.change_server(store, call.actor, url, change)
    call.show(changed.as_json(), CHANGED[changed.state].format(name=changed.name))


async def _show(call: Invocation) -> None:
    urls = servers_of(call.workspace)
    uses: Mapping[str, ServerUse] = {}
    try:
        async with opened(call.workspace, wait=SHORT_WAIT) as store:
            reports = await usecases.look_at_servers(store, call.workspace)
            uses = await usecases.server_uses(store, Intake(call.workspace), reports)
    except StoreError:  # there is no database, or it cannot be read
        reports = await asyncio.gather(*(look_at(url) for url in urls))
    if call.as_json:
        routing = {url: asdict(use) for url, use in uses.items()}
        print_json([report.as_json() | {"routing": routing.get(report.url)} for report in reports])
        return
    summaries = {url: use.summary for url, use in uses.items()}
    if on_terminal():
        print_table(reports, summaries)
    else:
        widths = max(len(report.name) for report in reports), max(4, *(len(report.state) for report in reports))
        for report in reports:
            typer.echo(f"{line_of(report, *widths)}  {one_line(summaries.get(report.url, ''))}".rstrip())
    for line in tuning_lines(call.workspace).values():
        typer.echo(one_line(line))


def _show_without_command(context: typer.Context, **options: Any) -> None:
    if context.invoked_subcommand is None:
        asyncio.run(show_errors(_show(_invocation(options))))


app.callback()(with_options(_show_without_command, _show, WITH_CONTEXT))


def line_of(report: ServerReport, name_width: int, state_width: int) -> str:
    head = f"{report.name:<{name_width}}  {report.state:<{state_width}}"
    if report.stats is None:
        return one_line(f"{head}  {report.error}")
    queue = f"{report.running} running, {report.pending} waiting"
    if report.stuck_since is not None:
        queue += f"  since {report.stuck_since[:19]} UTC: {STUCK_REMEDY}"
    return one_line(f"{head}  ComfyUI {report.stats.version}  {report.device}  {_memory(report)} free  {queue}")


def _memory(report: ServerReport) -> str:
    if report.stats is None or not report.stats.devices:
        return ""
    device = report.stats.devices[0]
    return f"{device.vram_free / 1024**3:.1f} GB of {device.vram_total / 1024**3:.1f} GB"


def print_table(reports: Sequence[ServerReport], summaries: Mapping[str, str]) -> None:
    counts = [Column(heading, justify="right") for heading in ("Running", "Waiting")]
    headings = ("Server", "State", "ComfyUI", "Device", "Free memory")
    table = Table(*headings, *counts, box=None, header_style="dim", pad_edge=False)
    for report in reports:
        state = f"{SERVER_MARKS[report.state]} {report.state}"
        state += f" since {report.stuck_since[11:19]} UTC" if report.stuck_since else ""
        if report.stats is None:
            table.add_row(Text(report.name), Text(state, "yellow"), "", Text(one_line(report.error)))
        else:
            described = (Text(one_line(report.stats.version)), Text(one_line(report.device)), Text(_memory(report)))
            colour = "green" if report.state == "up" else "yellow"
            table.add_row(Text(report.name), Text(state, colour), *described, str(report.running), str(report.pending))
    console = Console()
    console.print(table)
    for report in reports:
        if report.stuck_since is not None:
            console.print(Text(f"{report.name} is stuck: {STUCK_REMEDY}"), soft_wrap=True)
        if summary := summaries.get(report.url):
            console.print(Text(one_line(f"{report.name} {summary}"), "dim"), soft_wrap=True)
