"""`e3 workflow`: what a workflow takes, and where values can go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json
from comfyui_agent.cli.workflows import workflows_of
from comfyui_agent.config.workflows import NoWorkflow, Workflow, describe, names_of, open_places, read_template
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Places
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.recipes import Recipe

LONGEST_VALUE = 48

app = command_group("Workflows.")


@workspace_command(app, options=("workspace", "config", "as_json"))
async def inspect(
    call: Invocation,
    name: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A workflow in API format, or an id.", autocompletion=workflow_names),
    ],
) -> None:
    """Show every place of a workflow that a value can go to, and the names that lead there.

    [bold]Examples[/bold]

    e3 workflow inspect workflows/wf_realistic_portrait.json
        A file.

    e3 workflow inspect wf_realistic_portrait --json
        One that workflows.yaml names, with its own names of inputs.
    """
    found = _find(name, call.workspace)
    if call.as_json:
        print_json(describe(found))
        return
    rows = [
        [place.place, ", ".join(names_of(found, place)) or "-", _shown(place.value), place.title or place.class_type]
        for place in open_places(found)
    ]
    rows = [[one_line(cell) for cell in row] for row in rows]
    if on_terminal():
        _print_table(rows)
    else:
        for row in rows:
            typer.echo("  ".join(row))
    recipe = found.recipe
    if recipe.description:
        typer.echo(f"\n{recipe.description}")
    typer.echo(f"\nrequired inputs: {', '.join(recipe.required_inputs) or 'none'}")
    if found.places.placeholders:
        typer.echo(f"placeholders: {', '.join(f'${{{name}}}' for name in found.places.placeholders)}")
    if recipe.defaults:
        typer.echo(f"defaults: {', '.join(f'{key}: {_shown(value)}' for key, value in recipe.defaults.items())}")


def _print_table(rows: list[list[str]]) -> None:
    from rich.console import Console  # not for those who print lines
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(heading, overflow="fold") for heading in ("Place", "Names", "Now", "Node")]
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def _find(name: str, workspace: Workspace) -> Workflow:
    workflows, file = workflows_of(workspace), Path(name)
    try:
        if name not in workflows.recipes and file.is_file():
            graph, path = read_template(file), file.resolve()
            recipe = Recipe(file.stem, str(file))
            for each in reversed(list(workflows.recipes.values())):
                recipe = each if (workspace.root / each.template_path).resolve() == path else recipe
            return Workflow(recipe, Template.of(graph), graph, Places(graph))
        if name.endswith(".json"):
            fail(f"there is no file {name}")
        return workflows.find(name)
    except NoWorkflow as error:
        fail(str(error))


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
