"""Books: batches whose members are pages. A book is made from a file, and single pages can be changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.batches.book_file import BookFile, SaidBook
from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.shared_inputs import Shared, common, share
from comfyui_agent.batches.sweep_request import Keep
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
from comfyui_agent.store.rows import parsed_object

SEEDS = ("seed", "noise_seed")


class BadPage(Exception):
    """A page that cannot be changed. The message says what is wrong and what to do."""


@dataclass(frozen=True)
class Book:
    """A checked book, and its pages as jobs."""

    batch: NewBatch
    jobs: tuple[NewJob, ...]

    @property
    def stored_bytes(self) -> int:
        """About how much its pages take in the database."""
        return sum(bytes_of(job.inputs) + bytes_of(job.metadata) for job in self.jobs)


def read_book(text: SaidBook, settings: Settings, find: Callable[[str], Workflow], keep: Keep) -> Book:
    """Make a book of its file. Complaints name every wrong page. Nothing is queued here."""
    said = text.said
    title = said.title or said.book_id or "book"
    book_id = said.book_id or mint_batch_id(title, "book")
    found: list[Complaint] = []
    jobs: list[NewJob] = []
    workflows: dict[str, Workflow] = {}
    for index, page in enumerate(said.pages):
        try:
            workflow = _workflow_of(text, index, find)
        except Complaints as error:
            found += error.found
            if page.workflow:
                continue
            break  # the others have the same problem
        try:
            job = _page(book_id, index, said, workflow, settings, keep)
        except Unbindable as error:
            found += [_complaint(text, index, name, message) for name, message in error.problems.items()]
            continue
        if problem := too_large(job.inputs, job.metadata, settings.job_limit_kb):
            found.append(Complaint(text.where(("pages", index, "inputs")), f"page {index + 1}: inputs", problem))
        workflows[workflow.template.hash] = workflow
        jobs.append(job)
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


def _workflow_of(text: SaidBook, index: int, find: Callable[[str], Workflow]) -> Workflow:
    page = text.said.pages[index]
    at = ("pages", index)
    name = page.workflow or text.said.workflow
    if not name:
        raise Complaints.about(text.where(at), "is missing: write one for the book, or for each page", "workflow")
    try:
        return find(name)
    except NoWorkflow as error:
        if page.workflow:
            raise Complaints.about(text.where((*at, "workflow")), str(error), f"page {index + 1}: workflow") from None
        raise Complaints.about(text.where(("workflow",)), str(error), "workflow") from None


def _complaint(text: SaidBook, index: int, name: str, message: str) -> Complaint:
    """A complaint about an input of a page, or of the book if the page does not give it."""
    key = dotted(("inputs", name))
    if name in text.said.inputs and name not in text.said.pages[index].inputs:
        return Complaint(text.where(("inputs", name)), key, message)
    return Complaint(text.where(("pages", index, "inputs", name)), f"page {index + 1}: {key}", message)


def _shared(workflow: Workflow, jobs: Sequence[NewJob]) -> Shared:
    """The values that the pages of one workflow share."""
    bound = [job.inputs for job in jobs if job.template == workflow.template]
    return share(workflow, common(bound), len(bound))


def _without(job: NewJob, shared: Mapping[str, Shared]) -> NewJob:
    kept = shared[job.template.hash if job.template else ""]
    return replace(job, template=kept.template, inputs=kept.own(job.inputs))


def name_of(workflow: Workflow) -> str:
    """The name to find a workflow again: its id, or the path of its template."""
    path = workflow.recipe.template_path
    return path if Path(path).is_absolute() else workflow.recipe.workflow_id


def _page(book_id: str, index: int, said: BookFile, workflow: Workflow, settings: Settings, keep: Keep) -> NewJob:
    own = said.pages[index].inputs
    values = bind(workflow.places, workflow.recipe, {**said.inputs, **own})
    job_type = job_type_of(workflow.graph)
    name = f"page_{index + 1:03d}"
    return NewJob(
        config_name=f"{book_id}_{name}",
        job_type=job_type,
        workflow_id=workflow.recipe.workflow_id,
        template=workflow.template,
        inputs=values,
        priority=settings.default_priority if said.priority is None else said.priority,
        retry_limit=settings.books.retry_limit,
        file_path=f"{settings.paths.jobs_finished.rstrip('/')}/{folder_of(job_type)}/{book_id}/{name}.png",
        metadata={"page": index + 1, "workflow": name_of(workflow), "overrides": dict(own)},
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
    """A page with new inputs and, with `draw_seed`, a new seed. BadPage if that cannot be made."""
    kept = parsed_object(job.metadata)
    name = kept.get("workflow")
    try:
        workflow = find(name if isinstance(name, str) and name else job.workflow_id)
        if draw_seed is not None:
            changes = {**_new_seeds(workflow, draw_seed(), changes), **changes}
            if not changes:
                raise BadPage(f"{job.config_name}: its workflow has no seed to change: give new inputs with --set")
        inputs = _changed(workflow, settings_of(job, book), changes)
        values = bind(workflow.places, _lenient(workflow, inputs), inputs)
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
    """The same new seed at every seed of the workflow that `changes` does not set."""
    given = {place for name in changes for place in _places(workflow, name)}
    return {
        place.place: seed
        for place in workflow.places.all.values()
        if place.name in SEEDS and not place.is_link and place.place not in given
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
