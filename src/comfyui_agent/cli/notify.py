"""`e3 notify`: who is told when work has ended."""

from __future__ import annotations

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.usecases.notifications import send_test

app = command_group("Notifications: who is told when work has ended or a person is needed.")


@workspace_command(app)
async def test(call: Invocation) -> None:
    """Send a test message to every address of notify.urls. Exit 1 if one of them did not take it."""
    async with call.opened(create=True) as store:
        sent = await send_test(store, call.workspace, call.actor)
    call.show({"sent": sent}, f"A test message is on its way: {', '.join(sent)}.")
