"""`e3 doctor`: is everything there, and what to do if not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import typer

from comfyui_agent.cli.output import fail, one_line, print_json
from comfyui_agent.cli.workspace import HERE, SHORT_WAIT, AsJson, ConfigOption, Folder, opened
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.config.validation import Complaints
from comfyui_agent.store.integrity import Finding
from comfyui_agent.usecases.checkup import check_workspace


def doctor(workspace: Folder = HERE, config: ConfigOption = "", as_json: AsJson = False) -> None:
    """Check configuration, folders, workflows, database, disk, servers, models and rejected files; say what to do.

    Nothing is changed. Exit 1 if something needs attention.
    """
    if not workspace.is_dir():
        fail(f"there is no folder {workspace}", code=2)
    raise typer.Exit(asyncio.run(_doctor(workspace, config, as_json)))


async def _doctor(folder: Path, config: str, as_json: bool) -> int:
    found = []
    async for each in _look(folder, config):
        found.append(each)
        if not as_json:
            typer.echo(one_line(f"{'●' if each.is_fine else '△'} {each.name}: {each.message}"))
    troubles = sum(not each.is_fine for each in found)
    if as_json:
        print_json([{"name": each.name, "fine": each.is_fine, "message": each.message} for each in found])
    else:
        attention = "1 thing needs" if troubles == 1 else f"{troubles} things need"
        typer.echo(f"\n{attention} attention." if troubles else "\nAll is well.")
    return 1 if troubles else 0


async def _look(folder: Path, config: str) -> AsyncIterator[Finding]:
    try:
        workspace = load_workspace(folder, os.environ, config or None)
    except Complaints as error:
        for complaint in error.found:
            yield Finding("configuration", False, str(complaint))
        return
    async for each in check_workspace(workspace, partial(opened, workspace, wait=SHORT_WAIT)):
        yield each
