"""`e3 init`: a workspace to begin with."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.output import fail, print_json
from comfyui_agent.cli.workspace import AsJson
from comfyui_agent.comfy.address import ServerAddress
from comfyui_agent.config.loader import CONFIG, load_workspace
from comfyui_agent.config.scaffold import start_workspace
from comfyui_agent.config.validation import Complaints
from comfyui_agent.store.connect import migrate_store
from comfyui_agent.store.errors import StoreError


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder; else the current one.")] = Path(),
    server: Annotated[str, typer.Option("--server", metavar="URL", help="The ComfyUI that it works with.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a workspace: folders for job files and results, a configuration, three workflows and jobs to try.

    Files that are there already are left as they are.
    """
    if server:
        try:
            ServerAddress.parse(server)
        except ValueError as error:
            fail(f"--server: {error}", code=2)
    try:
        files = dict(start_workspace(folder, server))
    except OSError as error:
        fail(f"{error.filename or folder} cannot be made: {error.strerror}")
    environment = {name: value for name, value in os.environ.items() if name != CONFIG}  # it may name another workspace
    try:
        workspace = load_workspace(folder, environment)
        migrate_store(workspace.database)
    except Complaints as error:
        fail(str(error), code=2)
    except StoreError as error:
        fail(str(error))
    made = [place for place, is_new in files.items() if is_new]
    kept = [place for place, is_new in files.items() if not is_new]
    if as_json:
        print_json({"workspace": str(workspace.root), "made": made, "kept": kept})
        return
    for place in (*(f"made  {each}" for each in made), *(f"kept  {each}" for each in kept)):
        typer.echo(place)
    if server and any(place.endswith("global_config.yaml") for place in kept):
        typer.echo(f"e3: the configuration was there: set comfyui.api_base_url in it to {server} yourself", err=True)
    here = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    typer.echo(f"\nA workspace is in {workspace.root}. Next:")
    typer.echo(f"  {here}e3 doctor                               # is everything there?")
    typer.echo("  cp examples/T2I_*_knight.yaml jobs/processing/image/")
    typer.echo("  e3 run                                  # drop more files while it runs")
