"""`e3 mcp`: tools for AI agents, on stdin and stdout. Nothing else is ever printed there."""

from __future__ import annotations

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.output import fail
from comfyui_agent.cli.workspace import check_addresses, check_files
from comfyui_agent.pools import OBJECTS


@workspace_command(options=("workspace", "config", "database", "verbose"), until_signal=True)
async def mcp(call: Invocation) -> None:
    """Serve tools to an AI agent that starts this command: render, sweep, make books, wait, look at results.

    It speaks the Model Context Protocol on stdin and stdout. It renders nothing itself: e3 run does. The page serves
    the same tools at http://127.0.0.1:8190/mcp. See docs/mcp.md for what to write into the agent's configuration.
    """
    from comfyui_agent.access.gate import Caller  # all of this is for those who need it
    from comfyui_agent.comfy.tasks import BackgroundTasks
    from comfyui_agent.domain.tokens import Role
    from comfyui_agent.mcp.host import Client, Host
    from comfyui_agent.mcp.server import make_server
    from comfyui_agent.usecases.forecasts import Forecasts
    from comfyui_agent.usecases.intake import Intake
    from comfyui_agent.usecases.sweeps import PatientPlanner
    from comfyui_agent.web.fleet_view import FleetView
    from comfyui_agent.web.outputs import Outputs

    workspace = call.workspace
    if workspace.config is None and not workspace.processing.is_dir():  # agents start it anywhere
        fail(
            f"there is no workspace in {workspace.root.absolute()}: make one with e3 init, or name one with -C", code=2
        )
    check_addresses(workspace, are_given=False)
    await OBJECTS.run(check_files, workspace)
    async with call.opened(create=True) as store:
        fleet, background = FleetView(store, workspace), BackgroundTasks("something that was begun for an AI agent")
        intake, forecasts = Intake(workspace), Forecasts(store, workspace)
        host = Host(store, workspace, intake, forecasts, fleet.reports, Outputs(workspace), background.start)
        client = Client(Caller(Role.ADMIN), call.actor, PatientPlanner())
        try:
            await make_server(host, lambda _: client).run_stdio_async()
        finally:
            await background.stop()
            await fleet.close()
