"""`e3 gateway`: ComfyUI's protocol in front of all servers, without working the queue off."""

from __future__ import annotations

from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.sites import GATEWAY, served
from comfyui_agent.cli.workspace import check_addresses, check_files, opened, with_settings
from comfyui_agent.pools import OBJECTS

PORT = 8187


@workspace_command(options=("workspace", "config", "database", "verbose"), until_signal=True)
async def gateway(
    call: Invocation,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; else gateway.host, 127.0.0.1.")] = "",
    port: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=65535, help=f"Which port; else gateway.port, {PORT}.")
    ] = None,
) -> None:
    """Be a ComfyUI for its clients: each prompt becomes a job, which agents render on all servers.

    e3 run does so, too, where gateway.port is set. Without tokens only this machine can reach it; another address
    needs a token first: e3 token create. Clients send it as Authorization: Bearer, as a password, or in the address:
    http://HOST:8187/t/TOKEN
    """
    check_addresses(call.workspace, are_given=False)
    await OBJECTS.run(check_files, call.workspace)
    settings = call.workspace.settings.gateway
    address = {"host": host or settings.host, "port": port or settings.port or PORT}
    workspace = with_settings(call.workspace, "gateway", **address)
    async with opened(workspace, create=True, is_patient=True) as store, served(GATEWAY, store, workspace) as site:
        typer.echo(f"Clients of ComfyUI find E3 at {site.url}. Ctrl-C stops; what they posted stays.", err=True)
        await call.warn_if_unattended(store)
        await site.answering
