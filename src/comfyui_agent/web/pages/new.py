"""The page for a new picture, sweep or book, with a form of the workflow's inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.access.problem import Problem
from comfyui_agent.config.workflows import Workflow, names_of, open_places
from comfyui_agent.domain.binding import TOKEN, Place, Unbindable
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.needs import missing_for, needs_of_template
from comfyui_agent.domain.prompts import NoSuchPlace
from comfyui_agent.domain.values import draw_seeds
from comfyui_agent.web.screens import NoScreen, Screen, View

SENTENCES = {
    "one": "One picture from a workflow.",
    "sweep": "A picture for every combination of some values.",
    "book": "A book: one picture for each page.",
}
LONG = 40
MOST_FIELDS = 60
PROMPTS = ("prompt", "text", "positive")


@dataclass(frozen=True)
class Field:
    """An input of a workflow. `kind` is long, text, whole, number, yes or picture."""

    name: str
    kind: str
    value: str
    now: str
    """The value of the template or of a default."""
    is_required: bool
    node: str
    is_seed: bool


async def build(view: View) -> Screen:
    kind = view.asked("kind", "one")
    if kind not in SENTENCES:
        raise NoScreen(f"there is nothing to make of the kind {kind[:100]!r}: it is one of {', '.join(SENTENCES)}")
    trouble, workflow = "", None
    known: list[str] = []
    try:
        known = [each.workflow_id for each in await view.context.submissions.workflows() if not each.problem]
        asked = view.asked("workflow") or next(iter(known), "")
        workflow = await view.context.submissions.workflow(asked) if asked else None
    except Problem as problem:
        trouble = f"{problem.detail[:1].upper()}{problem.detail[1:]}. {problem.remedy}"
    fields = _fields(workflow) if workflow is not None else []
    missing = await _missing(view, workflow) if workflow is not None else ""
    values = {
        "kind": kind,
        "known": known,
        "trouble": trouble,
        "missing": missing,
        "workflow": workflow.recipe if workflow else None,
        "job_type": job_type_of(workflow.graph) if workflow else "",
        "required": [field for field in fields if field.is_required],
        "others": [field for field in fields if not field.is_required],
        "prompts": [field.name for field in fields if field.kind == "long"],
        "default_priority": view.context.workspace.settings.default_priority,
    }
    return Screen("new.html", "New", SENTENCES[kind], values=values, section="new")


async def _missing(view: View, workflow: Workflow) -> str:
    """What no server has that the workflow names, where nothing else is filled in."""
    try:
        values, _ = workflow.bound({})
    except Unbindable as error:
        values = error.bound
    needs = needs_of_template(workflow.template, values)
    needs = replace(needs, models=tuple(each for each in needs.models if not TOKEN.search(each.value)))
    return missing_for([needs], await view.context.submissions.intake.offers(needs.classes))


def _fields(workflow: Workflow) -> list[Field]:
    """The inputs that the recipe names, or every value of the template if it names none."""
    recipe, places = workflow.recipe, workflow.places
    named = dict.fromkeys([*recipe.required_inputs, *recipe.inputs, *places.placeholders, *recipe.defaults])
    if not named:
        named = dict.fromkeys(next(iter(names_of(workflow, each)), each.place) for each in open_places(workflow))
    fields = [_field(workflow, name) for name in named]
    fields.sort(key=lambda field: (not field.is_required, field.kind not in ("long", "picture")))
    return fields[:MOST_FIELDS]


def _field(workflow: Workflow, name: str) -> Field:
    recipe = workflow.recipe
    place = _place(workflow, name)
    now = recipe.defaults.get(name)
    if now is None and place is not None and not (isinstance(place.value, str) and TOKEN.search(place.value)):
        now = place.value
    is_required = name in recipe.required_inputs or (name in workflow.places.placeholders and now is None)
    kind = _kind(name, place, now)
    text = now if isinstance(now, str) else "" if now is None else json.dumps(now, ensure_ascii=False)
    is_empty = is_required and kind not in ("whole", "number", "yes") and name not in recipe.defaults
    is_seed = kind == "whole" and "seed" in name.lower()
    value = str(draw_seeds(1)[0]) if is_seed else "" if is_empty else text
    node = "" if place is None else f"{place.name} of node {place.node_id}, {place.title or place.class_type}"
    return Field(name, kind, value, text, is_required, node, is_seed)


def _place(workflow: Workflow, name: str) -> Place | None:
    try:
        found = workflow.places.find(name, workflow.recipe) or workflow.places.placeholders.get(name, [])
    except NoSuchPlace:
        return None
    return workflow.places.all[found[0]] if found else None


def _kind(name: str, place: Place | None, now: Any) -> str:
    words = name.lower()
    if isinstance(now, bool):
        return "yes"
    if isinstance(now, int):
        return "whole"
    if isinstance(now, float):
        return "number"
    if place is not None and place.class_type.startswith("Load") and place.name in ("image", "video", "audio"):
        return "picture"
    if now is None and any(part in words for part in ("seed", "steps", "width", "height", "frames")):
        return "whole"
    if any(part in words for part in PROMPTS) or (isinstance(now, str) and len(now) > LONG):
        return "long"
    return "text"
