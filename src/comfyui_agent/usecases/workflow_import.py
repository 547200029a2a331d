"""A workflow of the workspace out of any file that carries one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.errors import ComfyError
from comfyui_agent.config.text_files import WorkspaceTexts
from comfyui_agent.config.workflows import (
    LONGEST_ID,
    WORKFLOW_ID,
    NoWorkflow,
    Workflow,
    entry_of,
    read_recipes,
    read_workflow_file,
)
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Places, Recipe
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.usecases.errors import NotPossible
from comfyui_agent.workflows.conversion import Dialect, convert
from comfyui_agent.workflows.errors import WorkflowError

LARGEST_FILE = 256 * 1024 * 1024


@dataclass(frozen=True)
class ImportedWorkflow:
    workflow_id: str
    format: str
    nodes: int
    path: str
    recipes: str
    inputs: Mapping[str, list[str]]

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "inputs": dict(self.inputs)}


async def import_workflow(workspace: Workspace, file: Path, workflow_id: str) -> ImportedWorkflow:
    """Write the workflow of a file as a template, and its entry into `workflows.yaml`. NotPossible if one is there."""
    target = workspace.workflow(workflow_id)
    if not WORKFLOW_ID.fullmatch(workflow_id) or len(workflow_id) > LONGEST_ID:
        raise NotPossible(f"{workflow_id[:60]!r} cannot be the id of a workflow: give one with --name")
    recipes = read_recipes(workspace.recipes) if workspace.recipes.exists() else {}
    if workflow_id in recipes or target.exists():
        where = workspace.recipes.name if workflow_id in recipes else target
        raise NotPossible(f"{workflow_id} is in {where} already: give another name with --name")
    try:
        found = read_workflow_file(file, LARGEST_FILE)
    except NoWorkflow as error:
        raise NotPossible(str(error)) from None
    graph = await _converted(found.document, workspace) if found.is_editor_format else found.document
    if not graph:
        raise NotPossible(f"{file}: no node of this workflow is to be run")
    recipe = Recipe(workflow_id, workspace.without_root(str(target)))
    workflow = Workflow(recipe, Template.of(graph), graph, Places(graph), WorkspaceTexts(workspace.root))
    _write(workspace, target, workflow)
    shown = f"{found.format} ({found.container})" if found.container else found.format
    inputs = {name: list(places) for name, places in workflow.places.usual.items()}
    return ImportedWorkflow(workflow_id, shown, len(graph), recipe.template_path, str(workspace.recipes), inputs)


async def _converted(document: Any, workspace: Workspace) -> Graph:
    url = workspace.settings.comfyui.urls[0]
    try:
        async with ComfyClient(url, listen=False) as client:
            dialect = Dialect.of_version((await client.system_stats()).version)
            definitions = await client.definitions.all()
    except ComfyError as error:
        raise NotPossible(f"the UI format needs a server's definitions: {error}; name one with --server") from None
    try:
        return convert(document, definitions, dialect)
    except WorkflowError as error:
        raise NotPossible(f"refused: {error}") from None


def _write(workspace: Workspace, target: Path, workflow: Workflow) -> None:
    entry = entry_of(workflow)
    old = workspace.recipes.read_text(encoding="utf-8") if workspace.recipes.exists() else ""
    temporary = workspace.recipes.with_suffix(".new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workspace.recipes.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f"{old.rstrip()}\n\n{entry}" if old.strip() else entry, encoding="utf-8")
        if workflow.recipe.workflow_id not in read_recipes(temporary):
            raise NotPossible(
                f"{workspace.recipes} takes no more entries: write it as lines, one workflow below another"
            )
        with target.open("x", encoding="utf-8") as file:
            file.write(json.dumps(workflow.graph, indent=2) + "\n")
        os.replace(temporary, workspace.recipes)  # noqa: PTH105 - as everywhere
    except OSError as error:
        raise NotPossible(f"the workflow cannot be written: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)
