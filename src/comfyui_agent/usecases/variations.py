"""From a result onwards: the same again with other values, many of its kind, or another workflow on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.batches import axes
from comfyui_agent.batches.members import effective_inputs
from comfyui_agent.batches.regeneration import new_seeds
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.domain.binding import Places, Recipe, Unbindable, literal
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import Job, NewJob, Template, too_large
from comfyui_agent.domain.kinds import job_type_of
from comfyui_agent.domain.prompts import SEED_INPUTS, NoSuchPlace, place
from comfyui_agent.domain.values import draw_seeds
from comfyui_agent.store import operations as ops
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, NotPossible
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.jobs import queue_job, submit_job
from comfyui_agent.usecases.sweeps import Defined, Planner, plan_sweep

OF_ONE = frozenset({"combination", "inputs", "overrides", "drawn", "workflow", "from"})
"""Keys of a job's metadata that say how it came to be."""
MADE = re.compile(r"(_[0-9a-f]{8})?(_\d+)?(\.ya?ml)?$", re.IGNORECASE)
"""What E3 puts behind a name."""


@dataclass(frozen=True)
class Original:
    """What a job was made of: its workflow, with its own values in it."""

    job: Job
    template: Template
    values: Mapping[str, Any]
    """By place."""
    pictures: Mapping[str, str]
    workflow: Workflow

    @property
    def seeds(self) -> list[str]:
        """The places of its seeds."""
        places = self.workflow.places.all.values()
        return [each.place for each in places if each.name in SEED_INPUTS and not each.is_link]

    @property
    def seed_axis(self) -> str:
        """What an axis over all of its seeds is called."""
        named = {**self.workflow.places.usual, **self.workflow.recipe.inputs}
        names = (name for name, places in named.items() if set(places) == set(self.seeds))
        return next(names, ",".join(self.seeds))

    def metadata(self) -> dict[str, Any]:
        """What its descendants keep of its metadata, and their origin."""
        kept = parsed_object(self.job.metadata)
        own = {key: value for key, value in kept.items() if key not in OF_ONE}
        return {**own, "from": self.job.config_name}

    def name(self) -> str:
        """A name for a descendant: its own, with other letters behind it."""
        return mint_batch_id(MADE.sub("", self.job.config_name) or self.job.workflow_id, "job")


async def original_of(store: Store, intake: Intake, job: Job) -> Original:
    """What a job was made of. NotPossible if its workflow is not known any more."""
    template = await store.run(ops.find_template, job.template_hash) if job.template_hash else None
    batch = await store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    async with intake.reading() as admission:
        known = admission.workflows.recipes.get(job.workflow_id)
        texts = admission.workflows.texts
    if template is None:
        raise NotPossible(f"{job.config_name} has no workflow of its own on record", "Submit it anew.")
    values = effective_inputs(job, batch)

    def read() -> Workflow:
        graph = place(literal(template.graph()), literal(values))
        found = Places(graph)
        names = known.inputs if known is not None else {}
        inputs = {name: places for name, places in names.items() if found.all.keys() >= set(places)}
        recipe = Recipe(job.workflow_id, known.template_path if known else "", inputs=inputs)
        return Workflow(recipe, Template.of(graph), graph, found, texts)

    try:
        workflow = await intake.threads.run(read)
    except NoSuchPlace as error:
        raise NotPossible(f"{job.config_name} does not fit its workflow: {error}", "Submit it anew.") from None
    return Original(job, template, values, parsed_object(job.pictures), workflow)


async def run_again(
    store: Store,
    intake: Intake,
    actor: Actor,
    original: Original,
    changes: Mapping[str, Any],
    *,
    new_seed: bool = False,
    name: str = "",
    priority: int | None = None,
    external_id: str | None = None,
) -> Job:
    """Queue a job like another one, with changes by name and a new seed if wanted."""
    actor.check_priority(priority)
    new = await intake.threads.run(_changed, intake, original, dict(changes), new_seed)
    settings = intake.workspace.settings
    if problem := too_large(new.inputs, new.metadata, settings.job_limit_kb):
        raise Invalid.of_key("inputs", problem, "Shorten it.")
    chosen = settings.default_priority if priority is None else priority
    new = replace(new, config_name=name or original.name(), priority=chosen, external_id=external_id)
    return await queue_job(store, actor, new)


def _changed(intake: Intake, original: Original, changes: dict[str, Any], new_seed: bool) -> NewJob:
    """The job with changes. It draws, binds and keeps pictures as for any other job."""
    workflow, job = original.workflow, original.job
    try:
        if new_seed:
            seeds = new_seeds(workflow, draw_seeds(1)[0], changes)
            if not seeds and not changes:
                raise NotPossible(f"the workflow of {job.config_name} has no seed", "Change one of its inputs.")
            changes = {**seeds, **changes}
        given, drawn = workflow.bound(changes)
        kept = intake.keep(workflow, given)
    except Unbindable as error:
        raise Invalid.of_problems(error.problems) from None
    return NewJob(
        config_name=job.config_name,
        job_type=job.job_type,
        workflow_id=job.workflow_id,
        template=original.template,
        inputs={**original.values, **given},
        retry_limit=job.retry_limit,
        timeout_seconds=job.timeout_seconds,
        output_node=job.output_node,
        metadata={**original.metadata(), **drawn.as_json()},
        pictures={where: name for where, name in original.pictures.items() if where not in given} | kept,
    )


async def plan_variations(
    intake: Intake,
    original: Original,
    sets: Mapping[str, Any],
    planner: Planner,
    *,
    inputs: Mapping[str, Any] | None = None,
    seeds: int = 0,
    mode: Mode = Mode.MATRIX,
    bounds: axes.Bounds | None = None,
    priority: int | None = None,
    batch_id: str = "",
) -> Defined:
    """A sweep around a job: over some of its inputs, over so many new seeds, or both. Nothing is queued."""
    wanted = dict(sets)
    if seeds and not original.seeds:
        raise NotPossible(f"the workflow of {original.job.config_name} has no seed", "Vary another of its inputs.")
    if seeds:
        wanted[original.seed_axis] = f"random:{seeds}"
    request = SweepRequest(
        workflow=original.workflow,
        sets=wanted,
        inputs=dict(inputs or {}),
        mode=mode,
        name=MADE.sub("", original.job.config_name) or original.job.workflow_id,
        job_type=original.job.job_type,
        priority=intake.workspace.settings.default_priority if priority is None else priority,
        batch_id=batch_id,
        pictures=original.pictures,
    )
    return await plan_sweep(intake.workspace, request, _no_lists, planner, bounds=bounds)


async def use_result(
    store: Store,
    intake: Intake,
    actor: Actor,
    job: Job,
    workflow_id: str,
    changes: Mapping[str, Any],
    *,
    result: int = 1,
    name: str = "",
    external_id: str | None = None,
) -> Job:
    """Queue another workflow whose input picture is a result of this job."""
    if not 1 <= result <= len(job.outputs):
        raise NotPossible(f"{job.config_name} has no result number {result}", "Wait until it is done.")
    async with intake.reading() as admission:
        workflow = await intake.threads.run(admission.workflows.find, workflow_id)
    source = job.outputs[result - 1]
    tree = {
        "job_type": job_type_of(workflow.graph),
        "workflow_id": workflow_id,
        "inputs": {picture_input(workflow): source, **changes},
        "metadata": {"from": job.config_name},
    }
    new_name = name or mint_batch_id(f"{MADE.sub('', job.config_name)}_{workflow_id}", "job")
    return await submit_job(store, intake, actor, tree, new_name, external_id=external_id)


def picture_input(workflow: Workflow) -> str:
    """The name of the one input picture of a workflow. NotPossible if it has none, or several."""
    own = [name for name in workflow.recipe.inputs if "image" in name.lower() or "picture" in name.lower()]
    usual = [name for name in workflow.places.usual if name.partition("_")[0] == "image"]
    found = own or usual
    if len(found) == 1:
        return found[0]
    workflow_id = workflow.recipe.workflow_id
    if not found:
        raise NotPossible(f"{workflow_id} takes no picture", "Choose a workflow with a node that loads one.")
    raise NotPossible(f"{workflow_id} takes several pictures: {', '.join(found)}", "Say which with its inputs.")


def _no_lists(name: str) -> list[str]:
    raise ValueError(f"@{name[:100]} names a file, which is for e3 sweep: write the values themselves")
