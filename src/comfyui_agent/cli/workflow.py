"""`e3 workflow`: what a workflow takes, and where values can go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json, print_rows
from comfyui_agent.cli.workflows import workflows_of
from comfyui_agent.cli.workspace import HERE, AsJson, ConfigOption, Folder, workspace_at
from comfyui_agent.config.workflows import NoWorkflow, Workflow, describe, names_of, open_places, read_template
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Places
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.recipes import Recipe

LONGEST_VALUE = 48

app = typer.Typer(add_completion=False, help="Workflows.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def workflow() -> None:
    """Workflows."""


@app.command()
def inspect(
    name: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A workflow in API format, or an id.", autocompletion=workflow_names),
    ],
    workspace: Folder = HERE,
    config: ConfigOption = "",
    as_json: AsJson = False,
) -> None:
    """Show every place of a workflow that a value can go to, and the names that lead there.

    [bold]Examples[/bold]

    e3 workflow inspect workflows/wf_realistic_portrait.json
        A file.

    e3 workflow inspect wf_realistic_portrait --json
        One that workflows.yaml names, with its own names of inputs.
    """
    found = _find(name, workspace_at(workspace, config=config))
    if as_json:
        print_json(describe(found))
        return
    rows = [
        [place.place, ", ".join(names_of(found, place)) or "-", _shown(place.value), place.title or place.class_type]
        for place in open_places(found)
    ]
    rows = [[one_line(cell) for cell in row] for row in rows]
    if on_terminal():
        print_rows(("Place", "Names", "Now", "Node"), rows)
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


def _find(name: str, workspace: Workspace) -> Workflow:
    workflows, file = workflows_of(workspace), Path(name)
    try:
        if name not in workflows.recipes and file.is_file():
            graph = read_template(file)
            recipe = next(
                (
                    each
                    for each in workflows.recipes.values()
                    if (workspace.root / each.template_path).resolve() == file.resolve()
                ),
                Recipe(file.stem, str(file)),
            )
            return Workflow(recipe, Template.of(graph), graph, Places(graph))
        if name.endswith(".json"):
            fail(f"there is no file {name}")
        return workflows.find(name)
    except NoWorkflow as error:
        fail(str(error))


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
