"""What a workflow of a workspace is measured with: its template, its defaults, and the pictures that those name."""

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
    """What is required and has no default stays as the template has it. PayloadError if it cannot be made whole."""
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
