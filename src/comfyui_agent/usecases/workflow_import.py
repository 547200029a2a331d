"""A workflow of the workspace out of any file that carries one."""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from comfyui_agent.config.text_files import WorkspaceTexts
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import (
    LONGEST_ID,
    WORKFLOW_ID,
    NoWorkflow,
    Workflow,
    Workflows,
    entry_of,
    read_recipes,
    read_workflow_file,
)
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Places, Recipe
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.texts import whole
from comfyui_agent.fleet.workflow_conversion import convert_with
from comfyui_agent.pools import REQUESTS
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, NotPossible
from comfyui_agent.workflows.errors import WorkflowError
from comfyui_agent.workflows.workflow_file import FoundWorkflow, find_workflow

LARGEST_FILE = 256 * 1024 * 1024
LONGEST_SUGGESTED = 60
WRITING = threading.Lock()
"""Held while the entries of `workflows.yaml` are read and written."""


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


async def import_workflow(workspace: Workspace, file: Path, workflow_id: str = "") -> ImportedWorkflow:
    """Write the workflow of a file as a template, and its entry into `workflows.yaml`. NotPossible if one is there.

    Without an id it is called as the file.
    """
    try:
        found = read_workflow_file(file, LARGEST_FILE)
    except NoWorkflow as error:
        raise NotPossible(str(error)) from None
    return await REQUESTS.run(_import, workspace, found, workflow_id or _id_of(file.name))


async def import_upload(
    store: Store, workspace: Workspace, actor: Actor, data: bytes, workflow_id: str, file_name: str
) -> ImportedWorkflow:
    """The same for what was uploaded. Without an id it is called as its file, and numbered if that is taken."""

    def work() -> ImportedWorkflow:
        try:
            return _import(workspace, find_workflow(data), workflow_id or _free_id(workspace, _id_of(file_name)))
        except WorkflowError as error:
            raise NotPossible(f"{whole(file_name or workflow_id, 100)}: {error}") from None
        except Complaints as error:
            raise Invalid(str(error), "Mend the file workflows.yaml of the workspace.") from None

    made = await REQUESTS.run(work)
    await actor.audit(store, EventName.AUDIT_WORKFLOW_IMPORT, message=made.workflow_id)
    return made


def _id_of(file_name: str) -> str:
    return re.sub(r"[^\w .-]+", "_", Path(file_name).stem).lstrip(" .-")[:LONGEST_SUGGESTED] or "workflow"


def _free_id(workspace: Workspace, workflow_id: str) -> str:
    workflows = Workflows(workspace)
    workflows.refresh()
    taken = {each.casefold() for each in workflows.known()}
    names = (f"{workflow_id}_{number}" if number > 1 else workflow_id for number in count(1))
    return next(each for each in names if each.casefold() not in taken)


def _import(workspace: Workspace, found: FoundWorkflow, workflow_id: str) -> ImportedWorkflow:
    target = workspace.workflow(workflow_id)
    if not WORKFLOW_ID.fullmatch(workflow_id) or len(workflow_id) > LONGEST_ID:
        message = f"{workflow_id[:60]!r} cannot be the id of a workflow"
        raise NotPossible(message, "Give it another name.", line=f"{message}: give one with --name")
    try:
        graph = convert_with(workspace, found.document, random.choice) if found.is_editor_format else found.document
    except WorkflowError as error:
        raise NotPossible(f"refused: {error}", "Nothing was written.") from None
    recipe = Recipe(workflow_id, workspace.without_root(str(target)))
    workflow = Workflow(recipe, Template.of(graph), graph, Places(graph), WorkspaceTexts(workspace.root))
    with WRITING:
        recipes = read_recipes(workspace.recipes) if workspace.recipes.exists() else {}
        if workflow_id in recipes or target.exists():
            message = f"{workflow_id} is in {workspace.recipes.name if workflow_id in recipes else target} already"
            raise NotPossible(message, "Give it another name.", line=f"{message}: give another name with --name")
        _write(workspace, target, workflow)
    shown = f"{found.format} ({found.container})" if found.container else found.format
    inputs = {name: list(places) for name, places in workflow.places.usual.items()}
    return ImportedWorkflow(workflow_id, shown, len(graph), recipe.template_path, str(workspace.recipes), inputs)


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
