"""Rendering pages of a book again, with new inputs or a new seed if wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.binding import Recipe, Unbindable
from comfyui_agent.domain.jobs import Job, JobId, NewJob, too_large
from comfyui_agent.domain.prompts import SEED_INPUTS, NoSuchPlace
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.domain.values import draw_seeds
from comfyui_agent.pools import PLANNING
from comfyui_agent.store import operations as ops
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.store.store import Store


class BadPage(Exception):
    """A page that cannot be changed. The message says what is wrong and what to do."""


class NotRegenerated(Exception):
    """Pages that cannot be rendered again now. `remedy` is for the command line."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class NoSuchPage(NotRegenerated):
    """The book has no such page."""


class PageUnderWay(NotRegenerated):
    """The page waits or renders already."""


def page_of(job: Job) -> int:
    return (job.batch_index or 0) + 1


def choose(jobs: Sequence[Job], pages: Sequence[int] | None, book_id: str, *, only_failed: bool = False) -> list[Job]:
    """The named pages, each once; with None, those that need attention. NotRegenerated if one cannot be chosen."""
    if pages is None:
        return [job for job in jobs if job.needs_attention]
    known = {page_of(job): job for job in reversed(jobs)}  # the first counts if someone gave two the same number
    chosen = []
    for page in dict.fromkeys(pages):
        job = known.get(page)
        if job is None:
            raise NoSuchPage(f"{book_id} has no page {page}", f"it has {counted(len(known), 'page')}")
        if job.status in (JobStatus.PENDING, JobStatus.PROCESSING):
            state = "waits already" if job.status is JobStatus.PENDING else "is rendering"
            raise PageUnderWay(f"page {page} of {book_id} {state}", f"cancel it first with e3 cancel {job.config_name}")
        if only_failed and job.status is not JobStatus.FAILED:
            raise NotRegenerated(f"page {page} of {book_id} has not failed", "name one that needs attention")
        chosen.append(job)
    return chosen


async def regenerate(
    store: Store,
    find: Callable[[str], Workflow],
    keep: Keep,
    book: Batch,
    pages: Sequence[int] | None,
    changes: Mapping[str, Any],
    new_seed: bool,
    *,
    limit_kb: int,
    only_failed: bool = False,
) -> list[int]:
    """Submit pages of a book again, all of them or none, and return the numbers of those that this call submitted.
    NotRegenerated if there are none, BadPage if new inputs do not fit. `find` and `keep` run in another thread."""
    jobs = [job async for job in ops.batch_members(store, book.id)]
    chosen = choose(jobs, pages, book.id, only_failed=only_failed)
    wanted: list[tuple[JobId, NewJob | None]] = [(job.id, None) for job in chosen]
    if changes or new_seed:
        found = [await store.run(ops.find_job_by_id, job.id) for job in chosen]

        def change(job: Job) -> NewJob:
            return page_again(job, book, changes, draw_seeds(1)[0] if new_seed else None, find, keep, limit_kb)

        wanted = await PLANNING.run(lambda: [(job.id, change(job)) for job in found if job is not None])
    done = set(await store.run(ops.resubmit_jobs, wanted, avoid_cache=not changes and not new_seed))
    if not done:
        raise _nothing_failed(jobs, book)
    return [page_of(job) for job in chosen if job.id in done]


def _nothing_failed(jobs: Sequence[Job], book: Batch) -> NotRegenerated:
    under_way = sum(job.status in (JobStatus.PENDING, JobStatus.PROCESSING) for job in jobs)
    if under_way:
        left = f"{under_way} {'is' if under_way == 1 else 'are'} still to come"
        return NotRegenerated(f"no page of {book.id} has failed, and {left}", "wait until they have ended")
    if any(job.status is JobStatus.FAILED for job in jobs):
        return NotRegenerated(f"no page of {book.id} has failed; some were cancelled", "name one with --page N")
    return NotRegenerated(
        f"no page of {book.id} needs attention", "name a page with --page N to render it all the same"
    )


def page_again(
    job: Job,
    book: Batch,
    changes: Mapping[str, Any],
    seed: int | None,
    find: Callable[[str], Workflow],
    keep: Keep,
    limit_kb: int,
) -> NewJob:
    """A page with new inputs and a new seed, if one is given. BadPage if that cannot be made."""
    kept = parsed_object(job.metadata)
    name = kept.get("workflow")
    try:
        workflow = find(name if isinstance(name, str) and name else job.workflow_id)
        if seed is not None:
            changes = {**new_seeds(workflow, seed, changes), **changes}
            if not changes:
                raise BadPage(f"{job.config_name}: its workflow has no seed to change: give new inputs with --set")
        inputs = _changed(workflow, settings_of(job, book), changes)
        before = kept["drawn"].get("seed") if isinstance(kept.get("drawn"), dict) else None
        values, drawn = workflow.bound(inputs, seed=before if seed is None else seed, recipe=_lenient(workflow, inputs))
        typed = {name: values[next(iter(_places(workflow, name)))] for name in changes if _places(workflow, name)}
        overrides = _changed(workflow, kept.get("overrides"), {**changes, **typed})
        pictures = keep(workflow, values)
    except NoWorkflow as error:
        raise BadPage(f"{job.config_name}: workflow {error}") from None
    except Unbindable as error:
        raise BadPage(f"{job.config_name}: {error}") from None
    metadata = {**kept, "inputs": inputs, "overrides": overrides, **drawn.as_json()}
    if problem := too_large(values, metadata, limit_kb):
        raise BadPage(f"{job.config_name}: {problem}")
    return NewJob(
        config_name=job.config_name,
        job_type=job.job_type,
        workflow_id=job.workflow_id,
        template=workflow.template,
        inputs=values,
        metadata=metadata,
        pictures=pictures,
    )


def new_seeds(workflow: Workflow, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same new seed at every seed of the workflow that `changes` does not set."""
    given = {place for name in changes for place in _places(workflow, name)}
    return {
        place.place: seed
        for place in workflow.places.all.values()
        if place.name in SEED_INPUTS and not place.is_link and place.place not in given
    }


def _changed(workflow: Workflow, inputs: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with changes. A name of which only some places change is replaced by its other places."""
    known = inputs if isinstance(inputs, dict) else {}
    changed = {place for name in changes for place in _places(workflow, name)}
    kept: dict[str, Any] = {}
    for name, value in known.items():
        places = _places(workflow, name)
        if changed.isdisjoint(places):
            kept[name] = value
        else:
            kept |= {place: value for place in places if place not in changed}
    for name, value in changes.items():
        places = _places(workflow, name)
        kept[next((other for other in known if places and _places(workflow, other) == places), name)] = value
    return _named(workflow, kept)


def _named(workflow: Workflow, inputs: dict[str, Any]) -> dict[str, Any]:
    """Replace places by their recipe name where all places of a name have the same value."""
    for name, places in workflow.recipe.inputs.items():
        values = [inputs[place] for place in places if place in inputs]
        is_one = len(values) == len(places) and all(each == values[0] for each in values)
        if name not in inputs and values and is_one:
            inputs = {key: value for key, value in inputs.items() if key not in places} | {name: values[0]}
    return inputs


def _lenient(workflow: Workflow, inputs: Mapping[str, Any]) -> Recipe:
    """The recipe without the required inputs whose places are all given."""
    given = {place for name in inputs for place in _places(workflow, name)}
    recipe = workflow.recipe
    needed = [name for name in recipe.required_inputs if name in inputs or not given >= set(_places(workflow, name))]
    return replace(recipe, required_inputs=tuple(needed))


def _places(workflow: Workflow, name: str) -> list[str]:
    try:
        return workflow.places.find(name, workflow.recipe)
    except NoSuchPlace:  # binding reports it
        return []
