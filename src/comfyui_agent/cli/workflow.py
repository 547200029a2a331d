"""`e3 workflow`: what a workflow takes; and finding the workflows and lists of values that commands name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from comfyui_agent.cli.completion import workflow_names
from comfyui_agent.cli.invocation import Invocation, workspace_command
from comfyui_agent.cli.lazy_group import command_group
from comfyui_agent.cli.output import fail, on_terminal, one_line, print_json
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import (
    NoWorkflow,
    Workflow,
    Workflows,
    describe,
    entry_of,
    names_of,
    open_places,
)
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Place, Recipe
from comfyui_agent.domain.texts import counted, listed
from comfyui_agent.domain.value_types import Kind, text_of, type_of
from comfyui_agent.fleet.workflow_conversion import open_workflows

if TYPE_CHECKING:
    from comfyui_agent.lab.payloads import Payload

LONGEST_VALUE = 48
MOST_CHOICES = 4
LARGEST_LIST = 64 * 1024 * 1024

app = command_group("Workflows.")


@workspace_command(app, options=("workspace", "config", "as_json"))
async def inspect(
    call: Invocation,
    name: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A workflow file, or an id.", autocompletion=workflow_names),
    ],
) -> None:
    """Show every place of a workflow that a value can go to, and the names that lead there."""
    found = _find(name, call.workspace)
    if call.as_json:
        print_json(describe(found))
        return
    places = open_places(found)
    choices = await _choices(places, call.workspace)
    rows = [
        [
            ", ".join(names_of(found, place)) or "-",
            place.place,
            _shown(place.value),
            place.title or place.class_type,
            choices.get(place.place, ""),
        ]
        for place in places
    ]
    _print_table([[one_line(cell) for cell in row] for row in rows])
    recipe = found.recipe
    if recipe.description:
        typer.echo(f"\n{recipe.description}")
    typer.echo(f"\nrequired inputs: {', '.join(recipe.required_inputs) or 'none'}")
    if found.places.placeholders:
        typer.echo(f"placeholders: {', '.join(f'${{{name}}}' for name in found.places.placeholders)}")
    if recipe.defaults:
        typer.echo(f"defaults: {', '.join(f'{key}: {_shown(value)}' for key, value in recipe.defaults.items())}")
    if not recipe.inputs:
        shown = call.workspace.job_file(call.workspace.root / recipe.template_path)
        entry = entry_of(replace(found, recipe=replace(recipe, template_path=shown)))
        typer.echo(f"\nan entry for config/workflows.yaml:\n\n{entry}", nl=False)


@workspace_command(app, "import", options=("workspace", "config", "server", "as_json"))
async def import_file(
    call: Invocation,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A workflow in UI or API format, or a picture or film.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Its id; else the name of the file.")] = "",
) -> None:
    """Make a workflow of the workspace out of any file that carries one.

    The UI format is converted with the definitions of a server, as ComfyUI's page does it. What cannot be converted
    surely is refused, with node and reason; nothing is overwritten.
    """
    from comfyui_agent.usecases.workflow_import import import_workflow  # with the client, for those who need it

    found = await import_workflow(call.workspace, file, name)
    if call.as_json:
        print_json(found.as_json())
        return
    typer.echo(one_line(f"found {found.format} in {file}: {counted(found.nodes, 'node')}, none refused"))
    typer.echo(one_line(f"wrote {found.path}"))
    typer.echo(one_line(f"added {found.workflow_id} to {found.recipes}: {', '.join(found.inputs) or 'no inputs'}"))


def _print_table(rows: list[list[str]]) -> None:
    shown = [["Names", "Place", "Now", "Node", "Choices"], *rows]
    if not any(row[-1] for row in rows):  # no server says what there is to choose from
        shown = [row[:-1] for row in shown]
    heading, *rows = shown
    if not on_terminal():
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        for row in shown:
            typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.console import Console  # not for those who print lines
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(each, overflow="fold") for each in heading]
    table = Table(*columns, box=None, header_style="dim", pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


async def _choices(places: Sequence[Place], workspace: Workspace) -> dict[str, str]:
    """What servers offer at each place where there is a choice. Empty if none answers."""
    from comfyui_agent.engine.intake.choices import ask_definitions  # not for those who only find a workflow
    from comfyui_agent.fleet.launch.state import server_urls

    found, _ = await ask_definitions(server_urls(workspace), {place.class_type for place in places})
    choices: dict[str, str] = {}
    for place in places:
        types = [type_of(None, each, place.name) for each in found.get(place.class_type, ())]
        offered = dict.fromkeys(text_of(choice) for each in types if each.kind is Kind.COMBO for choice in each.choices)
        if offered:
            choices[place.place] = listed(list(offered), MOST_CHOICES)
    return choices


def _find(name: str, workspace: Workspace) -> Workflow:
    workflows, file = workflows_of(workspace), Path(name)
    try:
        if name not in workflows.recipes and file.is_file():
            found, path = workflows.at(file), file.resolve()
            recipes = workflows.recipes.values()
            named = (each for each in recipes if (workspace.root / each.template_path).resolve() == path)
            return replace(found, recipe=next(named, Recipe(file.stem, str(path))))
        if name.endswith(".json"):
            fail(f"there is no file {name}")
        return workflows.find(name)
    except NoWorkflow as error:
        fail(str(error))


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def found_at(name: str, folder: Path) -> Path:
    """A file by its path, relative to the current folder or else to the workspace."""
    path = Path(name).expanduser()
    return path if path.exists() or not (folder / path).exists() else folder / path


def workflows_of(workspace: Workspace) -> Workflows:
    found = open_workflows(workspace)
    try:
        found.refresh()
    except Complaints as error:
        fail(str(error), code=2)
    return found


def payload_named(name: str, workspace: Workspace, folder: Path, *, code: int = 2) -> Payload:
    """What a lab sends: a file, else a workflow of the workspace with its defaults, else a sample."""
    from comfyui_agent.lab.payloads import Payload, PayloadError, bound_to_defaults, read_payload, sample_path

    try:
        path = found_at(name, folder)
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a name that no file can have, or ~ of nobody
        fail(f"{name[:100]!r} cannot be a workflow: {getattr(error, 'strerror', None) or error}", code=code)
    try:
        if is_file:
            return Payload.of(path.stem, open_workflows(workspace).at(path).graph)
        if name.lower().endswith(".json"):
            fail(f"there is no file {name}: give a workflow file, or an id of workflows.yaml", code=code)
        workflows = workflows_of(workspace)
        sample = sample_path(name, workspace.root)
        if sample is not None and name not in workflows.recipes:
            return read_payload(sample)
        return bound_to_defaults(workflows.find(name), workspace)
    except (NoWorkflow, PayloadError) as error:
        fail(str(error), code=code)


def lines_below(base: Path) -> Callable[[str], Sequence[str]]:
    """Reads the lists that `@name` stands for, relative to a folder."""

    def read(name: str) -> Sequence[str]:
        path = base / Path(name).expanduser()
        try:
            if path.stat().st_size > LARGEST_LIST:
                raise ValueError(f"{path} is too large for a list of values")
            return path.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8") from None

    return read
