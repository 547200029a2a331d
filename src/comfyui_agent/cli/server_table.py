"""Reports of servers as lines and as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfyui_agent.cli.output import gigabytes, one_line
from comfyui_agent.domain.badges import SERVER_MARKS
from comfyui_agent.domain.server_states import STUCK_REMEDY

if TYPE_CHECKING:
    from comfyui_agent.engine.server_reports import ServerReport


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
    return f"{gigabytes(device.vram_free)} of {gigabytes(device.vram_total)}"


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
        state = f"{SERVER_MARKS[report.state]} {report.state}"
        state += f" since {report.stuck_since[11:19]} UTC" if report.stuck_since else ""
        if report.stats is None:
            table.add_row(Text(report.name), Text(state, "yellow"), "", Text(one_line(report.error)))
        else:
            counts = (str(report.running), str(report.pending))
            described = (Text(one_line(report.stats.version)), Text(one_line(report.device)), Text(_memory(report)))
            colour = "green" if report.state == "up" else "yellow"
            table.add_row(Text(report.name), Text(state, colour), *described, *counts)
    console = Console()
    console.print(table)
    for report in reports:
        if report.stuck_since is not None:
            console.print(Text(f"{report.name} is stuck: {STUCK_REMEDY}"), soft_wrap=True)
