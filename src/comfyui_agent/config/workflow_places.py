"""The places of a workflow and their names, for scripts and pages."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Place
from comfyui_agent.domain.placement import NoSuchPlace


def describe(workflow: Workflow) -> dict[str, Any]:
    """The inputs of a workflow as JSON."""
    described = []
    for place in open_places(workflow):
        facts = asdict(place)
        facts.pop("is_link")
        described.append(facts | {"names": names_of(workflow, place)})
    recipe = workflow.recipe
    return {
        "workflow_id": recipe.workflow_id,
        "template_path": recipe.template_path,
        "required_inputs": list(recipe.required_inputs),
        "defaults": dict(recipe.defaults),
        "placeholders": list(workflow.places.placeholders),
        "places": described,
    }


def open_places(workflow: Workflow) -> list[Place]:
    """The places that are not connected to a node."""
    return [place for place in workflow.places.all.values() if not place.is_link]


def names_of(workflow: Workflow, place: Place) -> list[str]:
    """The names by which a job can set this place. Those of the recipe come first."""
    own = [name for name, places in workflow.recipe.inputs.items() if place.place in places]
    own += [name for name, places in workflow.places.placeholders.items() if place.place in places]
    required = any(name in workflow.recipe.required_inputs for name in own)
    for name in (place.name, place.title.lower().replace(" ", "_")):
        try:
            is_new = name and name not in own and not required
            if is_new and workflow.places.find(name, workflow.recipe) == [place.place]:
                own.append(name)
        except NoSuchPlace:
            continue
    return own
