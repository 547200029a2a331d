"""The page of the servers: state, memory, queue, and our jobs there."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.domain.server_states import STUCK_REMEDY
from comfyui_agent.domain.texts import counted, printable
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.engine.tuner import tuning_lines
from comfyui_agent.fleet.launch.process import log_tail
from comfyui_agent.pools import FILES
from comfyui_agent.usecases.servers import ProcessReport, server_uses
from comfyui_agent.web.screens import Fragment, Screen, View

LOG_BYTES = 8 * 1024
LOG_LINES = 20


async def build(view: View) -> Screen:
    fragment = await servers_part(view)
    sentence = await _sentence(view, fragment.values["servers"])
    return Screen("servers.html", "Servers", sentence, (fragment,), section="servers")


async def servers_part(view: View) -> Fragment:
    """All servers, each with our runs there, as a live fragment. The page of admins has it, too."""
    live = await view.context.fleet.live()
    reports = await view.context.fleet.reports()
    servers = [(report, [run for run in live if run.server == report.url]) for report in reports]
    processes = await view.context.fleet.processes()
    logs = {url: await FILES.run(_last_lines, each) for url, each in processes.items()} if view.is_admin else {}
    values = {
        "servers": servers,
        "stuck_remedy": STUCK_REMEDY,
        "processes": processes,
        "logs": logs,
        "uses": await server_uses(view.context.store, view.context.submissions.intake, reports),
        "tunings": await FILES.run(tuning_lines, view.context.workspace) if view.is_admin else {},
    }
    return Fragment("servers", values, template="servers_list.html")


def _last_lines(process: ProcessReport) -> str:
    lines = log_tail(process.folder, LOG_BYTES).splitlines()[1:]
    return "\n".join(printable(line) for line in lines[-LOG_LINES:])


async def _sentence(view: View, servers: Sequence[tuple[ServerReport, Sequence[LiveRun]]]) -> str:
    if not servers:
        return "No server is known."
    reports = [report for report, _ in servers]
    runs = [run for _, here in servers for run in here]
    up = [report for report in reports if report.state not in ("down", "stuck")]
    stuck = sum(report.state == "stuck" for report in reports)
    out = sum(report.out_of_work is not None for report in up)
    at_work = sum(run.stage == "rendering" for run in runs)
    text = f"{len(up)} of {counted(len(reports), 'server')} up"
    text += f", {stuck} stuck" if stuck else ""
    text += f", {out} out of work" if out else ""
    text += f", {counted(at_work, 'picture')} rendering" if at_work else ", nothing renders"
    if not runs and not await view.context.fleet.agents():
        text += ". No agent works here: start one with e3 run"
    return f"{text}."
