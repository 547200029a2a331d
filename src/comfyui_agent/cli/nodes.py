"""`e3 nodes`: E3's nodes inside ComfyUI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, one_line, print_json, warn
from comfyui_agent.cli.workspace import AsJson
from comfyui_agent.nodes import installer

MOST_LISTED = 12

app = command_group("E3's nodes inside ComfyUI.")


@app.command()
def install(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="ComfyUI's folder, or its base directory: custom_nodes is in it.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that were changed or added in an earlier installation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put the nodes of E3 Iterator into a ComfyUI: one prompt becomes a batch, in ComfyUI's own window.

    The same command again updates them. An earlier installation gives way only when the new one is there as a whole.
    """
    try:
        done = installer.install(folder, force=force)
    except installer.WrongFolder as error:
        fail(str(error), code=2)
    except installer.Changed as error:
        warn(str(error))
        for path in error.files[:MOST_LISTED]:
            typer.echo(one_line(f"  {path}"), err=True)
        if len(error.files) > MOST_LISTED:
            typer.echo(f"  and {len(error.files) - MOST_LISTED} more", err=True)
        raise typer.Exit(1) from None
    except installer.Refused as error:
        fail(str(error))
    except OSError as error:
        where, reason = error.filename or folder, error.strerror or error
        fail(f"{where} cannot be changed: {reason}; nothing was installed. If ComfyUI runs, stop it, and try again")
    for left in done.left_behind:
        warn(f"{left} could not be removed; ComfyUI leaves it alone, delete it yourself")
    if as_json:
        facts = {"path": str(done.path), "version": done.version, "files": done.files}
        print_json(facts | {"replaced": done.is_replaced, "changed": done.is_changed})
        return
    name = f"{installer.TITLE} {done.version}"
    if not done.is_changed:
        typer.echo(one_line(f"{name} is in {done.path} already ({done.files} files): nothing changed."))
        return
    what = "Replaced the earlier installation by" if done.is_replaced else "Installed"
    typer.echo(one_line(f"{what} {name} in {done.path} ({done.files} files)."))
    typer.echo("Restart ComfyUI, and reload its page: the nodes are in the category E3.")
    typer.echo("To update, give the same command after you have updated E3. To remove, delete that folder.")
