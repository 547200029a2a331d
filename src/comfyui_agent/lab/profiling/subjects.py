"""A workflow of the workspace as it is measured: its template, its defaults, and the pictures they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Unbindable, bind
from comfyui_agent.domain.node_classes import takes_file
from comfyui_agent.domain.placement import place
from comfyui_agent.engine.intake.input_files import InputFiles, Unusable
from comfyui_agent.lab.payloads import Payload, PayloadError


def bound_to_defaults(workflow: Workflow, workspace: Workspace) -> Payload:
    """The workflow with its defaults. A required input without a default keeps the template's value.

    PayloadError if a default does not fit, or if its picture cannot be used.
    """
    recipe = replace(workflow.recipe, required_inputs=())
    try:
        values = bind(workflow.places, recipe, {})
    except Unbindable as error:
        raise PayloadError(f"{recipe.workflow_id}: {error}: give it one in workflows.yaml") from None
    keeping = InputFiles(workspace)
    pictures: dict[str, Path] = {}
    for where, value in values.items():
        there = workflow.places.all[where]
        if isinstance(value, str) and takes_file(there.class_type, there.name):
            try:
                found = keeping.local_file(value)
            except Unusable as error:
                raise PayloadError(f"{recipe.workflow_id}: {where}: {error}") from None
            pictures |= {where: found} if found is not None else {}
    return replace(Payload.of(recipe.workflow_id, place(workflow.graph, values)), pictures=pictures)
