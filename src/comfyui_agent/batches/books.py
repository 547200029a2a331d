"""Books: a batch whose members are pages. Made from a file, and single pages made anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.batches.book_file import SaidBook
from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.shared_inputs import Shared, common, share
from comfyui_agent.batches.sweeps import Keep
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.validation import Complaint, Complaints, dotted
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.domain.batches import Batch, BatchKind, NewBatch, mint_batch_id
from comfyui_agent.domain.binding import Unbindable, bind
from comfyui_agent.domain.jobs import Job, NewJob
from comfyui_agent.domain.kinds import folder_of, job_type_of
from comfyui_agent.domain.placement import NoSuchPlace
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.domain.sizes import bytes_of, too_large
from comfyui_agent.store.port import parsed_object

SEEDS = ("seed", "noise_seed")


class BadPage(Exception):
    """A page that cannot be made anew: what is wrong, and what to do."""


@dataclass(frozen=True)
class Book:
    """A book that was checked, and its pages as jobs."""

    batch: NewBatch
    jobs: tuple[NewJob, ...]

    @property
    def stored_bytes(self) -> int:
        """About how much its pages take in the database."""
        return sum(bytes_of(job.inputs) + bytes_of(job.metadata) for job in self.jobs)


def read_book(text: SaidBook, settings: Settings, find: Callable[[str], Workflow], keep: Keep) -> Book:
    """The book of a file. Complaints name every page that cannot be made; nothing is queued here."""
    said = text.said
    title = said.title or said.book_id or "book"
    book_id = said.book_id or mint_batch_id(title, "book")
    found: list[Complaint] = []
    jobs: list[NewJob] = []
    workflows: dict[str, Workflow] = {}
    for index, page in enumerate(said.pages):
        at = ("pages", index)
        name = page.workflow or said.workflow
        if not name:
            found.append(Complaint(text.where(at), "workflow", "is missing: write one for the book, or for each page"))
            break
        try:
            workflow = find(name)
        except NoWorkflow as error:
            key: tuple[Any, ...] = (*at, "workflow") if page.workflow else ("workflow",)
            words = f"page {index + 1}: workflow" if page.workflow else "workflow"
            found.append(Complaint(text.where(key), words, str(error)))
            if not page.workflow:
                break
            continue
        try:
            job = _page(
                book_id,
                index,
                workflow,
                {**said.inputs, **page.inputs},
                settings,
                keep,
                overrides=page.inputs,
                priority=settings.default_priority if said.priority is None else said.priority,
            )
            problem = too_large(job.inputs, job.metadata, settings.job_limit_kb)
            if problem:
                found.append(Complaint(text.where((*at, "inputs")), f"page {index + 1}: inputs", problem))
            workflows[workflow.template.hash] = workflow
            jobs.append(job)
        except Unbindable as error:
            for each, message in error.problems.items():
                if each in said.inputs and each not in page.inputs:
                    found.append(Complaint(text.where(("inputs", each)), dotted(("inputs", each)), message))
                else:
                    where = text.where((*at, "inputs", each))
                    found.append(Complaint(where, f"page {index + 1}: {dotted(('inputs', each))}", message))
    if found:
        raise Complaints(list(dict.fromkeys(found)))
    shared = {hash_: _shared(workflow, jobs) for hash_, workflow in workflows.items()}
    metadata = {
        "title": title,
        "workflow": said.workflow,
        "pages": len(jobs),
        "inputs": dict(said.inputs),
        "shared": {hash_: values for each in shared.values() for hash_, values in each.as_json().items()},
    }
    batch = NewBatch(book_id, title, BatchKind.BOOK, metadata, is_serial=not settings.books.parallel_pages)
    return Book(batch, tuple(_without(job, shared) for job in jobs))


def _shared(workflow: Workflow, jobs: Sequence[NewJob]) -> Shared:
    """What the pages of one workflow have in common."""
    bound = [job.inputs for job in jobs if job.template == workflow.template]
    return share(workflow, common(bound), len(bound))


def _without(job: NewJob, shared: Mapping[str, Shared]) -> NewJob:
    kept = shared[job.template.hash if job.template else ""]
    return replace(job, template=kept.template, inputs=kept.own(job.inputs))


def name_of(workflow: Workflow) -> str:
    """How to find a workflow again: its id, or the path of a template that was named by it."""
    path = workflow.recipe.template_path
    return path if Path(path).is_absolute() else workflow.recipe.workflow_id


def _page(
    book_id: str,
    index: int,
    workflow: Workflow,
    inputs: Mapping[str, Any],
    settings: Settings,
    keep: Keep,
    *,
    overrides: Mapping[str, Any],
    priority: int,
) -> NewJob:
    values = bind(workflow.places, workflow.recipe, inputs)
    job_type = job_type_of(workflow.graph)
    name = f"page_{index + 1:03d}"
    return NewJob(
        config_name=f"{book_id}_{name}",
        job_type=job_type,
        workflow_id=workflow.recipe.workflow_id,
        template=workflow.template,
        inputs=values,
        priority=priority,
        retry_limit=settings.books.retry_limit,
        file_path=f"{settings.paths.jobs_finished.rstrip('/')}/{folder_of(job_type)}/{book_id}/{name}.png",
        metadata={
            "page": index + 1,
            "workflow": name_of(workflow),
            "overrides": dict(overrides),
        },
        batch_id=book_id,
        batch_index=index,
        pictures=keep(workflow, values),
    )


def page_again(
    job: Job,
    book: Batch,
    changes: Mapping[str, Any],
    draw_seed: Callable[[], int] | None,
    find: Callable[[str], Workflow],
    keep: Keep,
) -> NewJob:
    """A page with new inputs; with `draw_seed`, every seed of it is another. BadPage if that cannot be."""
    kept = parsed_object(job.metadata)
    said = kept.get("workflow")
    try:
        workflow = find(said if isinstance(said, str) and said else job.workflow_id)
        if draw_seed is not None:
            changes = {**_new_seeds(workflow, draw_seed(), changes), **changes}
            if not changes:
                raise BadPage(f"{job.config_name}: its workflow has no seed to change: give new inputs with --set")
        inputs = _changed(workflow, settings_of(job, book), changes)
        values = bind(workflow.places, _without_needless(workflow, inputs), inputs)
        typed = {name: values[next(iter(_places(workflow, name)))] for name in changes if _places(workflow, name)}
        overrides = _changed(workflow, kept.get("overrides"), {**changes, **typed})
        pictures = keep(workflow, values)
    except NoWorkflow as error:
        raise BadPage(f"{job.config_name}: workflow {error}") from None
    except Unbindable as error:
        raise BadPage(f"{job.config_name}: {error}") from None
    return NewJob(
        config_name=job.config_name,
        job_type=job.job_type,
        workflow_id=job.workflow_id,
        template=workflow.template,
        inputs=values,
        metadata={**kept, "inputs": inputs, "overrides": overrides},
        pictures=pictures,
    )


def _new_seeds(workflow: Workflow, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same new seed wherever the workflow has one, but where a change says something else."""
    said = {place for name in changes for place in _places(workflow, name)}
    return {
        place.place: seed
        for place in workflow.places.all.values()
        if place.name in SEEDS and not place.is_link and place.place not in said
    }


def _changed(workflow: Workflow, inputs: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with some of them changed. A name whose places are changed only in part stands for the others."""
    changed = {place: value for name, value in changes.items() for place in _places(workflow, name)}
    kept: dict[str, Any] = {}
    for name, value in inputs.items() if isinstance(inputs, dict) else ():
        places = _places(workflow, name)
        if not changed.keys() & set(places):
            kept[name] = value
        else:
            kept |= {place: value for place in places if place not in changed}
    known = list(inputs) if isinstance(inputs, dict) else []
    for name, value in changes.items():
        places = _places(workflow, name)
        kept[next((other for other in known if places and _places(workflow, other) == places), name)] = value
    return _named(workflow, kept)


def _named(workflow: Workflow, inputs: dict[str, Any]) -> dict[str, Any]:
    """Places that have one name, and one value, under that name."""
    for name, places in workflow.recipe.inputs.items():
        values = [inputs[place] for place in places if place in inputs]
        is_one = len(values) == len(places) and all(each == values[0] for each in values)
        if name not in inputs and values and is_one:
            inputs = {key: value for key, value in inputs.items() if key not in places} | {name: values[0]}
    return inputs


def _without_needless(workflow: Workflow, inputs: Mapping[str, Any]) -> Recipe:
    """The recipe, where what is required need not be said by its name if all its places are."""
    given = {place for name in inputs for place in _places(workflow, name)}
    recipe = workflow.recipe
    needed = [name for name in recipe.required_inputs if name in inputs or not given >= set(_places(workflow, name))]
    return replace(recipe, required_inputs=tuple(needed))


def _places(workflow: Workflow, name: str) -> list[str]:
    try:
        return workflow.places.find(name, workflow.recipe)
    except NoSuchPlace:  # said when it is bound
        return []
