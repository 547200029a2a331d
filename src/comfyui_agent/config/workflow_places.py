"""A workflow as scripts read it: every place that a value can go to, and the names that lead there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Place
from comfyui_agent.domain.placement import NoSuchPlace


def describe(workflow: Workflow) -> dict[str, Any]:
    """What a workflow takes."""
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
    """The places that hold a value, and no connection to a node."""
    return [place for place in workflow.places.all.values() if not place.is_link]


def names_of(workflow: Workflow, place: Place) -> list[str]:
    """The names under which a job can give a value for this place, the recipe's own first."""
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
