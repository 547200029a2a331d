"""The page for a new picture, sweep or book, with a form of the workflow's inputs.

`from` names a job: the form has its workflow as it was, filled with its values. `use` names a job whose result is the
input picture: only workflows that take one are offered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from comfyui_agent.access.problem import Problem
from comfyui_agent.config.workflows import Workflow, names_of, open_places
from comfyui_agent.domain.binding import TOKEN, Place, Unbindable
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.needs import Needs, Offered, choices_among, missing_for, needs_of_template
from comfyui_agent.domain.node_classes import model_folder, takes_file
from comfyui_agent.domain.prompts import NoSuchPlace
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.values import draw_seeds
from comfyui_agent.engine.intake.input_files import KEPT_INPUT
from comfyui_agent.fleet.launch.state import server_urls
from comfyui_agent.pools import FILES, REQUESTS
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.usecases.errors import UseCaseError
from comfyui_agent.usecases.variations import original_of, picture_input
from comfyui_agent.web.pages.cells import job_named
from comfyui_agent.web.screens import NoScreen, Screen, View

SENTENCES = {
    "one": "One picture from a workflow.",
    "sweep": "A picture for every combination of some values.",
    "book": "A book: one picture for each page.",
}
LONG = 40
MOST_FIELDS = 60
MOST_CHOICES = 2_000
PROMPTS = ("prompt", "text", "positive")
KEYS = ("seed", "width", "height", "frames")
"""What people set first, besides the prompt and pictures."""


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
    choices: Sequence[str] = ()
    """What servers offer there. Empty: anything goes, or nobody knows."""
    models: str = ""
    """The folder of models that the choices are files of."""

    @property
    def rank(self) -> int:
        """Prompts and pictures come first, then seed and size. The rest folds, unless it is required."""
        if self.kind in ("long", "picture") and (self.is_required or "negative" not in self.name.lower()):
            return 0
        return 1 if self.is_required or self.name.partition("_")[0] in KEYS else 2

    @property
    def thumbnail(self) -> str:
        """The address of a small picture of an uploaded input."""
        is_kept = self.kind == "picture" and self.value.startswith(KEPT_INPUT)
        return f"/api/v1/inputs/{self.value.removeprefix(KEPT_INPUT)}/thumbnail?width=320" if is_kept else ""


@dataclass(frozen=True)
class Begun:
    """What the form begins with: a workflow, and values by name that are filled in."""

    known: Sequence[str]
    workflow: Workflow | None = None
    filled: Mapping[str, str] | None = None
    job: Job | None = None
    """The job whose values or result they are."""
    is_again: bool = False
    trouble: str = ""


async def build(view: View) -> Screen:
    kind = view.asked("kind", "one")
    if kind not in SENTENCES:
        raise NoScreen(f"there is nothing to make of the kind {kind[:100]!r}: it is one of {', '.join(SENTENCES)}")
    try:
        begun = await _begun(view)
    except (Problem, UseCaseError) as error:
        message = error.detail if isinstance(error, Problem) else error.message
        begun = Begun((), trouble=f"{message[:1].upper()}{message[1:]}. {error.remedy}")
    workflow = begun.workflow
    offers = await _offers(view, workflow) if workflow is not None else {}
    fields = await REQUESTS.run(_fields, workflow, begun, list(offers.values())) if workflow is not None else []
    example, estimate = await _example(view, workflow) if workflow is not None else (None, {})
    if begun.is_again and begun.job is not None and begun.job.status is JobStatus.DONE:
        example = begun.job
    values = {
        "kind": kind,
        "begun": begun,
        "known": begun.known,
        "trouble": begun.trouble,
        "missing": _missing(workflow, offers) if workflow is not None else "",
        "workflow": workflow.recipe if workflow else None,
        "job_type": _job_type(begun),
        "required": [field for field in fields if field.rank < 2],
        "others": [field for field in fields if field.rank == 2],
        "prompts": [field.name for field in fields if field.kind == "long"],
        "default_priority": view.context.workspace.settings.default_priority,
        "example": example,
        "estimate": estimate,
    }
    return Screen("new.html", "New", _sentence(kind, begun), values=values, section="new")


def _job_type(begun: Begun) -> str:
    if begun.job is not None and begun.is_again:
        return begun.job.job_type
    return job_type_of(begun.workflow.graph) if begun.workflow is not None else ""


def _sentence(kind: str, begun: Begun) -> str:
    if begun.job is None:
        return SENTENCES[kind]
    name = begun.job.config_name
    if not begun.is_again:
        return f"The result of {name} is the input picture."
    return f"Around {name}: say what varies." if kind == "sweep" else f"Like {name}, with what you change."


async def _begun(view: View) -> Begun:
    submissions = view.context.submissions
    if view.asked("from"):
        job = await job_named(view, view.asked("from"))
        original = await original_of(view.context.store, submissions.intake, job)
        return Begun((), original.workflow, {}, job, is_again=True)
    known = [each.workflow_id for each in await submissions.workflows() if not each.problem]
    if view.asked("use"):
        job = await job_named(view, view.asked("use"))
        return await _on_picture(view, known, job.outputs[0] if job.outputs else "", job)
    if view.asked("picture"):
        return await _on_picture(view, known, view.asked("picture"))
    asked = view.asked("workflow") or next(iter(known), "")
    return Begun(known, await submissions.workflow(asked) if asked else None)


async def _on_picture(view: View, known: Sequence[str], picture: str, job: Job | None = None) -> Begun:
    """The workflows that take one picture, with this one filled in."""
    takers: dict[str, str] = {}
    for name in known:
        workflow = await view.context.submissions.workflow(name)
        try:
            takers[name] = picture_input(workflow)
        except UseCaseError:
            continue
    if not takers:
        return Begun((), job=job, trouble="No workflow here takes a picture: import one with a node that loads one.")
    asked = view.asked("workflow")
    chosen = asked if asked in takers else next(iter(takers))
    workflow = await view.context.submissions.workflow(chosen)
    return Begun(tuple(takers), workflow, {takers[chosen]: picture}, job)


async def _example(view: View, workflow: Workflow) -> tuple[Job | None, dict[str, float]]:
    """The last result of a workflow; seconds and bytes of one picture, and how many servers there are.

    A workflow without results takes as long as others with its models and size.
    """
    store, workflow_id = view.context.store, workflow.recipe.workflow_id
    wanted = JobFilter(status=JobStatus.DONE, workflow_id=workflow_id)
    job = next(iter((await store.run(ops.job_page, wanted, None, 1)).jobs), None)
    durations = await store.run(ops.past_durations, workflow_id)
    found: dict[str, float] = {"servers": max(1, len(server_urls(view.context.workspace)))}
    seconds = median(durations) if durations else await store.run(ops.seconds_like, _needs(workflow))
    if seconds:
        found["seconds"] = seconds
    if job is not None:
        found["bytes"] = await FILES.run(view.context.outputs.bytes_of, job)
    return job, found


async def _offers(view: View, workflow: Workflow) -> Mapping[str, Offered]:
    """What each server that answers in time offers of the workflow's nodes."""
    classes = {place.class_type for place in workflow.places.all.values()}
    return await view.context.submissions.intake.offers(classes)


def _missing(workflow: Workflow, offers: Mapping[str, Offered]) -> str:
    """What no server has that the workflow names, where nothing else is filled in."""
    needs = _needs(workflow)
    needs = replace(needs, models=tuple(each for each in needs.models if not TOKEN.search(each.value)))
    return missing_for([needs], offers)


def _needs(workflow: Workflow) -> Needs:
    """What it needs where nothing else is filled in."""
    try:
        values, _ = workflow.bound({})
    except Unbindable as error:
        values = error.bound
    return needs_of_template(workflow.template, values)


def _fields(workflow: Workflow, begun: Begun, offers: Sequence[Offered]) -> list[Field]:
    """The inputs that the recipe names, the usual ones, and every other value of the template if it names none."""
    recipe, places = workflow.recipe, workflow.places
    named = dict.fromkeys([*recipe.required_inputs, *recipe.inputs, *places.placeholders, *recipe.defaults])
    if not named:
        named = dict.fromkeys([*places.usual])
        covered = {place for found in places.usual.values() for place in found}
        others = [each for each in open_places(workflow) if each.place not in covered]
        named |= dict.fromkeys(next(iter(names_of(workflow, each)), each.place) for each in others)
    fields = [_field(workflow, name, begun, offers) for name in named]
    return sorted(fields[:MOST_FIELDS], key=lambda field: (field.rank, field.kind != "long"))


def _field(workflow: Workflow, name: str, begun: Begun, offers: Sequence[Offered]) -> Field:
    recipe = workflow.recipe
    place = _place(workflow, name)
    now = recipe.defaults.get(name)
    is_known = place is not None and (begun.is_again or not TOKEN.search(str(place.value)))
    if now is None and place is not None and is_known:
        now = place.value
    is_required = name in recipe.required_inputs or (name in workflow.places.placeholders and now is None)
    kind = _kind(name, place, now)
    text = now if isinstance(now, str) else "" if now is None else json.dumps(now, ensure_ascii=False)
    is_empty = is_required and kind in ("text", "picture") and name not in recipe.defaults
    is_seed = kind == "whole" and "seed" in name.lower()
    value = str(draw_seeds(1)[0]) if is_seed and not begun.is_again else "" if is_empty else text
    kept = parsed_object(begun.job.pictures) if begun.job is not None and begun.is_again else {}
    if place is not None and place.place in kept:
        value = text = f"{KEPT_INPUT}{kept[place.place]}"
    value = (begun.filled or {}).get(name, value)
    node = "" if place is None else f"{place.name} of node {place.node_id}, {place.title or place.class_type}"
    choices = _choices(place, kind, offers)
    models = model_folder(place.class_type, place.name) if place is not None and choices else ""
    return Field(name, kind, value, text, is_required, node, is_seed, choices, models)


def _choices(place: Place | None, kind: str, offers: Sequence[Offered]) -> list[str]:
    """What servers offer at a place, without numbers and files to load."""
    if place is None or kind != "text" or takes_file(place.class_type, place.name):
        return []
    return choices_among(offers, place.class_type, place.name)[:MOST_CHOICES]


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
