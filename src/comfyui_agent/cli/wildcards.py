"""`e3 wildcards`: what `__name__` in a text may stand for."""

from __future__ import annotations

from typing import Any

import typer

from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import one_line, print_json
from comfyui_agent.config.text_files import WILDCARDS, WorkspaceTexts
from comfyui_agent.domain.drawing import check_wildcard
from comfyui_agent.domain.texts import counted

SHOWN = 3

app = command_group("Wildcards.")


@workspace_command(app, options=("workspace", "config", "as_json"))
async def ls(call: Invocation) -> None:
    """List the wildcards of the workspace: what is written between the underscores, and what it stands for."""
    texts = WorkspaceTexts(call.workspace.root)
    sound: set[str] = set()
    found = [_described(texts, name, sound) for name in texts.names()]
    if call.as_json:
        print_json(found)
        return
    if not found:
        typer.echo(f"No wildcards: put a text file into {WILDCARDS}/, a line for each choice.")
    width = max((len(each["name"]) for each in found), default=0) + 4
    for each in found:
        said = each["problem"] or f"{counted(each['lines'], 'line')}: {', '.join(each['first'])}"
        written = f"__{each['name']}__"
        typer.echo(one_line(f"{written:{width}}  {said}"))


def _described(texts: WorkspaceTexts, name: str, sound: set[str]) -> dict[str, Any]:
    try:
        check_wildcard(name, texts, sound)
        lines = texts.wildcard(name)
    except ValueError as error:
        return {"name": name, "lines": 0, "first": [], "problem": str(error)}
    return {"name": name, "lines": len(lines), "first": list(lines[:SHOWN]), "problem": None}
