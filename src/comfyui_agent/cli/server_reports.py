"""One look at one server, for people and for scripts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from comfyui_agent.cli.printing import gigabytes
from comfyui_agent.cli.server_names import address_of, name_of
from comfyui_agent.domain.halts import Halt
from comfyui_agent.domain.texts import printable

if TYPE_CHECKING:
    from comfyui_agent.comfy.answers import SystemStats

MARKS = {"up": "●", "down": "△", "paused": "○", "draining": "◐", "drained": "○"}


@dataclass(frozen=True)
class ServerReport:
    """One look at one server."""

    name: str
    url: str
    stats: SystemStats | None = None
    running: int | None = None
    pending: int | None = None
    error: str = ""
    halt: Halt | None = None

    @property
    def state(self) -> str:
        """What matters most: one that cannot be reached is down, whatever people have said about it."""
        if self.stats is None:
            return "down"
        return self.halt.value if self.halt else "up"

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

    def line(self, name_width: int, state_width: int) -> str:
        head = f"{self.name:<{name_width}}  {self.state:<{state_width}}"
        if self.stats is None:
            return printable(f"{head}  {self.error}")
        queue = f"{self.running} running, {self.pending} waiting"
        return printable(f"{head}  ComfyUI {self.stats.version}  {self.device}  {self.memory} free  {queue}")


async def look_at(url: str) -> ServerReport:
    """Ask a server what it is and does; whatever keeps it from answering is in the report."""
    from comfyui_agent.comfy.client import ComfyClient
    from comfyui_agent.comfy.errors import ComfyError
    from comfyui_agent.comfy.limits import Limits

    shown = address_of(url)
    client = ComfyClient(url, limits=Limits(connect_seconds=3, answer_seconds=10, retries=0), listen=False)
    async with client:
        try:
            stats, queue = await asyncio.gather(client.system_stats(), client.queue())
        except ComfyError as error:
            return ServerReport(name_of(shown), shown, error=error.message)
        return ServerReport(name_of(shown), shown, stats, len(queue.running), len(queue.pending))


def print_table(reports: list[ServerReport]) -> None:
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
            table.add_row(Text(report.name), Text(state, "yellow"), "", Text(printable(report.error)))
        else:
            counts = (str(report.running), str(report.pending))
            described = (Text(printable(report.stats.version)), Text(printable(report.device)), Text(report.memory))
            colour = "yellow" if report.halt else "green"
            table.add_row(Text(report.name), Text(state, colour), *described, *counts)
    Console().print(table)
