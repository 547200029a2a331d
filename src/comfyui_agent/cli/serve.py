"""`e3 serve`: the web page and the API, without working the queue off."""

from __future__ import annotations

from typing import Annotated

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.sites import PAGE, served
from comfyui_agent.cli.workspace import check_addresses, check_files, opened, with_settings
from comfyui_agent.pools import OBJECTS


@workspace_command(options=("workspace", "config", "database", "verbose"), until_signal=True)
async def serve(
    call: Invocation,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; else ui.host, 127.0.0.1.")] = "",
    port: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=65535, help="Which port; else ui.port, 8190.")
    ] = None,
) -> None:
    """Serve the web page and the API of a workspace, whether or not an agent works there.

    e3 run serves them, too. Without tokens only this machine can reach them, and everyone here is an admin; another
    address needs a token first: e3 token create.
    """
    check_addresses(call.workspace, are_given=False)
    await OBJECTS.run(check_files, call.workspace)
    ui = call.workspace.settings.ui
    workspace = with_settings(call.workspace, "ui", host=host or ui.host, port=port or ui.port)
    async with opened(workspace, create=True, is_patient=True) as store, served(PAGE, store, workspace) as page:
        typer.echo(f"E3 is at {page.url}, the API at {page.url}/docs. Ctrl-C stops; the queue stays.", err=True)
        await page.answering
