"""`e3 servers`: what the ComfyUI servers are and do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comfyui_agent.cli.printing import fail, gigabytes, on_terminal, print_json
from comfyui_agent.cli.workspace import AsJson

if TYPE_CHECKING:
    from comfyui_agent.comfy.answers import SystemStats

DEFAULT = "http://127.0.0.1:8188"
MARKS = {"up": "●", "down": "△"}

app = typer.Typer(
    help="Look at ComfyUI servers.\n\nWithout a command: the same as [bold]ls[/bold].",
    invoke_without_command=True,
    rich_markup_mode="rich",
)

Servers = Annotated[
    list[str] | None,
    typer.Option("--server", metavar="URL", help="A server to look at; give it several times for several."),
]


@app.callback()
def servers(context: typer.Context, server: Servers = None, as_json: AsJson = False) -> None:
    context.obj = (server, as_json)
    if context.invoked_subcommand is None:
        _show(server, as_json)


@app.command()
def ls(context: typer.Context, server: Servers = None, as_json: AsJson = False) -> None:
    """Show version, devices, memory and queue of each server.

    [bold]Examples[/bold]

    e3 servers
        The ComfyUI on this machine.

    e3 servers ls --server http://gpu1:8188 --server http://gpu2:8188 --json
        Two others, for a script.
    """
    given, wanted_json = context.obj
    _show([*(given or []), *(server or [])], as_json or wanted_json)


def _show(urls: list[str] | None, as_json: bool) -> None:
    reports = asyncio.run(_look_at_all(urls or [DEFAULT]))
    if as_json:
        print_json([report.as_json() for report in reports])
    elif on_terminal():
        _print_table(reports)
    else:
        width = max(len(report.name) for report in reports)
        for report in reports:
            typer.echo(report.line(width))


@dataclass(frozen=True)
class ServerReport:
    """One look at one server."""

    name: str
    url: str
    stats: SystemStats | None = None
    running: int | None = None
    pending: int | None = None
    error: str = ""

    @property
    def state(self) -> str:
        return "down" if self.stats is None else "up"

    @property
    def device(self) -> str:
        return self.stats.devices[0].name if self.stats and self.stats.devices else ""

    @property
    def memory(self) -> str:
        if self.stats is None or not self.stats.devices:
            return ""
        device = self.stats.devices[0]
        return f"{gigabytes(device.vram_free)} of {gigabytes(device.vram_total)}"

    def as_json(self) -> dict[str, Any]:
        stats = self.stats
        devices = [] if stats is None else stats.devices
        return {
            "name": self.name,
            "url": self.url,
            "state": self.state,
            "version": stats.version if stats else None,
            "devices": [
                {"name": d.name, "type": d.kind, "vram_total": d.vram_total, "vram_free": d.vram_free} for d in devices
            ],
            "queue_running": self.running,
            "queue_pending": self.pending,
            "error": self.error or None,
        }

    def line(self, width: int) -> str:
        name = self.name.ljust(width)
        if self.stats is None:
            return f"{name}  down  {self.error}"
        queue = f"{self.running} running, {self.pending} waiting"
        return f"{name}  up    ComfyUI {self.stats.version}  {self.device}  {self.memory} free  {queue}"


async def _look_at_all(urls: list[str]) -> list[ServerReport]:
    return list(await asyncio.gather(*(_look_at(url) for url in urls)))


async def _look_at(url: str) -> ServerReport:
    from comfyui_agent.comfy.client import ComfyClient
    from comfyui_agent.comfy.errors import ComfyError
    from comfyui_agent.comfy.limits import Limits

    try:
        client = ComfyClient(url, limits=Limits(connect_seconds=3, answer_seconds=10, retries=0), listen=False)
    except ValueError as error:
        fail(str(error), code=2)
    name = str(client.address).partition("://")[2]
    async with client:
        try:
            stats, queue = await asyncio.gather(client.system_stats(), client.queue())
        except ComfyError as error:
            return ServerReport(name, str(client.address), error=error.message)
        return ServerReport(name, str(client.address), stats, len(queue.running), len(queue.pending))


def _print_table(reports: list[ServerReport]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False)
    for heading in ("Server", "State", "ComfyUI", "Device", "Free memory"):
        table.add_column(heading)
    for heading in ("Running", "Waiting"):
        table.add_column(heading, justify="right")
    for report in reports:
        state = f"{MARKS[report.state]} {report.state}"
        if report.stats is None:
            table.add_row(report.name, Text(state, "yellow"), "", Text(report.error))
        else:
            counts = (str(report.running), str(report.pending))
            described = (Text(report.stats.version), Text(report.device), report.memory)
            table.add_row(report.name, Text(state, "green"), *described, *counts)
    Console().print(table)
