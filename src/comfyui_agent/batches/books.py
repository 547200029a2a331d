"""Books: batches whose members are pages, made from a file `book.yaml`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import FailFast, Field

from comfyui_agent.batches.members import Shared, common, share
from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.config.settings import Priority, Settings
from comfyui_agent.config.validation import Complaint, Complaints, Document, Section, check, dotted
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.domain.batches import BatchKind, NewBatch, mint_batch_id
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.jobs import NewJob, too_large
from comfyui_agent.domain.kinds import folder_of, job_type_of
from comfyui_agent.domain.texts import bytes_of

MOST_PAGES = 100_000
BOOK_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class PageSaid(Section):
    """What is different about one page."""

    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values, such as prompt: a knight")
    workflow: str = Field(default="", description="a workflow of this workspace, or the path of a template")


class BookFile(Section):
    book_id: Annotated[str, Field(min_length=1, max_length=100, pattern=BOOK_ID)] | None = Field(
        default=None, description="letters, digits, dots, dashes and underscores, such as winter_tales"
    )
    title: str = Field(default="", max_length=500, description="a title in quotes")
    workflow: str = Field(default="", description="a workflow of this workspace, or the path of a template")
    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values for all pages")
    pages: Annotated[tuple[PageSaid, ...], Field(min_length=1, max_length=MOST_PAGES), FailFast()] = Field(
        description="a list of pages, each with inputs: below it"
    )
    priority: Priority | None = Field(default=None, description="a whole number; lower runs earlier, such as 50")


class SaidBook(Protocol):
    """A book from a file or a request, and where each part of it stands."""

    @property
    def said(self) -> BookFile: ...

    def where(self, path: tuple[Any, ...]) -> str: ...


class BookText(Document):
    """The content of a book file. Complaints if it is wrong."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "lines such as title: and pages:", "title:, workflow: and pages:")
        given = self.given
        if isinstance(given.get("pages"), list):  # an empty page takes everything from the book
            given["pages"] = [{} if page is None else page for page in given["pages"]]
        self.said = check(BookFile, given, self.where)


@dataclass(frozen=True)
class Book:
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
    shared: dict[str, Shared] = {}
    for hash_, workflow in workflows.items():
        bound = [job.inputs for job in jobs if job.template == workflow.template]
        shared[hash_] = share(workflow, common(bound), len(bound))
    metadata = {
        "title": title,
        "workflow": said.workflow,
        "pages": len(jobs),
        "inputs": dict(said.inputs),
        "shared": {hash_: values for each in shared.values() for hash_, values in each.as_json().items()},
    }
    batch = NewBatch(book_id, title, BatchKind.BOOK, metadata, is_serial=not settings.books.parallel_pages)
    kept = [shared[job.template.hash if job.template else ""] for job in jobs]
    return Book(
        batch,
        tuple(
            replace(job, template=each.template, inputs=each.own(job.inputs))
            for job, each in zip(jobs, kept, strict=True)
        ),
    )


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


def name_of(workflow: Workflow) -> str:
    """The name to find a workflow again: its id, or the path of its template."""
    path = workflow.recipe.template_path
    return path if Path(path).is_absolute() else workflow.recipe.workflow_id


def _page(book_id: str, index: int, said: BookFile, workflow: Workflow, settings: Settings, keep: Keep) -> NewJob:
    own = said.pages[index].inputs
    values, drawn = workflow.bound({**said.inputs, **own})
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
        metadata={"page": index + 1, "workflow": name_of(workflow), "overrides": dict(own), **drawn.as_json()},
        batch_id=book_id,
        batch_index=index,
        pictures=keep(workflow, values),
        reuse=workflow.recipe.reuse,
    )
