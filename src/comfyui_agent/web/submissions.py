"""The doors of the API: what is handed in becomes jobs, as files do, and what does not fit is said key by key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from comfyui_agent.batches.axes import BadSweep, Bounds, TooLarge
from comfyui_agent.batches.batch_writer import queue_batch
from comfyui_agent.batches.book_file import BookFile
from comfyui_agent.batches.books import BadPage, Book, read_book
from comfyui_agent.batches.regeneration import NoSuchPage, NotRegenerated, PageUnderWay, regenerate
from comfyui_agent.batches.sweep_file import SweepFile
from comfyui_agent.batches.sweep_request import GridAxes, SweepRequest
from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.config.validation import Complaints, dotted
from comfyui_agent.config.workflows import NoWorkflow, Workflow, Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import Batch, BatchStatus
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.domain.texts import json_text
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.choices import checking
from comfyui_agent.engine.intake.folder_scan import digest_of
from comfyui_agent.engine.intake.input_files import NotKept, keep_patiently
from comfyui_agent.engine.intake.submission import Answer, retry
from comfyui_agent.engine.sweep_planner import Defined, Planner, define_sweep
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import BatchTaken
from comfyui_agent.store.store import Store
from comfyui_agent.web.problems import Problem, from_complaints
from comfyui_agent.web.threads import REQUESTS

if TYPE_CHECKING:
    from comfyui_agent.web.actor import Actor

log = logging.getLogger(__name__)

MOST_JOBS = 100_000
BOUNDS = Bounds(combinations=MOST_JOBS, values=2 * MOST_JOBS)
MOST_BYTES = 128 * 1024**2
MOST_PAGES = 5_000
AGAIN = "Change what is named here, and send it again."


@dataclass(frozen=True)
class _SaidBook:
    said: BookFile

    def where(self, path: tuple[Any, ...]) -> str:  # noqa: ARG002 - a request has no lines
        return ""


class Submissions:
    """Takes wishes in. Each method raises a Problem that says what to change, and then nothing was queued."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._admission = Admission(workspace)
        self._busy = asyncio.Lock()
        self._shelf = Workflows(workspace)
        self._looking = asyncio.Lock()
        self.drawing = asyncio.Semaphore(1)
        """Grids are drawn one after another."""
        self._background: set[asyncio.Task[Any]] = set()

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("something that was begun in the page failed", exc_info=task.exception())

    async def close(self) -> None:
        await end_tasks(self._background)

    async def recipes(self) -> Mapping[str, Recipe]:
        """What `workflows.yaml` says now."""
        async with self._looking:
            await self._refresh(self._shelf)
            return dict(self._shelf.recipes)

    async def workflows(self) -> list[tuple[str, Recipe | None, str]]:
        """Every workflow as the files are now: its id, its recipe, and why it cannot be used, if so."""
        async with self._looking:
            await self._refresh(self._shelf)
            return await REQUESTS.run(self._look_at_all)

    def _look_at_all(self) -> list[tuple[str, Recipe | None, str]]:
        found: list[tuple[str, Recipe | None, str]] = []
        for workflow_id in self._shelf.known():
            try:
                found.append((workflow_id, self._shelf.find(workflow_id).recipe, ""))
            except NoWorkflow as error:
                found.append(
                    (workflow_id, self._shelf.recipes.get(workflow_id), self._workspace.without_root(str(error)))
                )
        return found

    async def workflow(self, workflow_id: str) -> Workflow:
        """A workflow by its id; files cannot be named from afar."""
        async with self._looking:
            await self._refresh(self._shelf)
            try:
                return await REQUESTS.run(self._shelf.find, workflow_id)
            except NoWorkflow as error:
                raise Problem(
                    404, f"workflow {self._workspace.without_root(str(error))}", "See /api/v1/workflows."
                ) from None

    async def _refresh(self, reader: Admission | Workflows) -> None:
        try:
            await REQUESTS.run(reader.refresh)
        except Complaints as error:
            words = self._workspace.without_root(str(error))
            raise Problem(409, words, "Mend the file workflows.yaml of the workspace.") from None

    async def submit(self, said: Mapping[str, Any], name: str, by: Actor | None = None) -> Job:
        """One job, as a job file says it."""
        await self.workflow(str(said.get("workflow_id", "")))
        try:
            async with self._busy:
                job = await REQUESTS.run(self._admission.job_of, said, name)
        except Complaints as error:
            raise from_complaints(error) from None
        except NotKept as error:
            raise Problem(409, str(error), AGAIN) from None
        holder = await self._store.run(ops.holder_of_path, job.file_path) if job.file_path else None
        if holder is not None:
            words = f"outputs.file_path: {job.file_path} belongs to {holder}"
            raise Problem(409, words, "Give this one another.", errors=[("outputs.file_path", words)])
        async with _room(by, 1):
            [job_id] = await self._store.run(ops.submit_jobs, [replace(job, created_by=_maker(by))])
        found = await self._store.run(ops.find_job_by_name, name)
        if job_id is None or found is None:
            raise Problem(409, f"there is a job {name} already", "Give this one another name, or leave it out.")
        return found

    def digest_of(self, said: Mapping[str, Any]) -> str:
        """What tells a wish from another of the same name."""
        return digest_of(json_text(dict(said), sort=True).encode("utf-8"))

    async def again(self, jobs: Sequence[Job]) -> list[Answer]:
        """Failed jobs, submitted again; one whose file is still there is read anew."""
        async with self._busy:
            await self._refresh(self._admission)
            return await retry(self._store, self._admission, self._workspace, jobs)

    async def plan(self, said: SweepFile, planner: Planner, *, skip_bad: bool, batch_id: str = "") -> Defined:
        """A sweep that was checked. Nothing is queued."""
        wish = SweepRequest(
            workflow=await self.workflow(said.workflow),
            sets=said.set,
            inputs=said.inputs,
            mode=said.mode,
            name=said.name,
            job_type=said.job_type,
            priority=self._workspace.settings.default_priority if said.priority is None else said.priority,
            grid=GridAxes(said.grid.x, said.grid.y, said.grid.pages),
            skip_bad=skip_bad,
            batch_id=batch_id,
        )
        try:
            return await define_sweep(self._workspace, wish, _no_lists, planner, BOUNDS)
        except BadSweep as error:
            key = dotted(error.key)
            detail = f"{key}: {error.message}" if key else error.message
            remedy = "Queue it with e3 sweep, or in parts." if isinstance(error, TooLarge) else AGAIN
            raise Problem(409, detail, remedy, errors=[(key, error.message)]) from None
        except NotKept as error:
            raise Problem(409, str(error), AGAIN) from None

    async def sweep(
        self, said: SweepFile, planner: Planner, *, skip_bad: bool, batch_id: str, by: Actor | None = None
    ) -> tuple[Batch, tuple[str, ...]]:
        """Queue a sweep; its batch, and what people should know of it."""
        found = await self.plan(said, planner, skip_bad=skip_bad, batch_id=batch_id)
        _check_bytes(found.sweep.stored_bytes, f"{len(found.sweep):,} jobs", "e3 sweep")
        batch = replace(found.sweep.batch, created_by=_maker(by))
        try:
            async with _room(by, len(found.sweep)):
                await queue_batch(self._store, self._workspace.locks, batch, found.sweep.jobs())
        except (Unbindable, NotKept, BatchTaken) as error:
            raise Problem(409, str(error), AGAIN) from None
        return await self._batch(batch_id), found.warnings

    async def book(self, said: BookFile, by: Actor | None = None) -> Batch:
        """Queue every page of a book."""
        book_id = said.book_id or ""
        if len(said.pages) > MOST_PAGES:
            words = f"{len(said.pages):,} pages are too many for one request: at most {MOST_PAGES:,}"
            raise Problem(409, words, "Queue it with e3 book create, or as several books.")
        known = await self._store.run(ops.find_batch, book_id)
        if known is not None and known.status is not BatchStatus.PENDING:  # else it may be what a dead process left
            raise Problem(409, f"there is a book {book_id} already", "Give another book_id, or regenerate its pages.")
        keep = checking(keep_patiently(self._workspace), self._admission.choices)
        find = self._admission.workflows.find

        def read() -> Book:
            book = read_book(_SaidBook(said), self._workspace.settings, find, keep)
            _check_bytes(book.stored_bytes, f"{len(book.jobs):,} pages", "e3 book create")
            return book

        try:
            async with self._busy:
                await self._refresh(self._admission)
                found = await REQUESTS.run(read)
            batch = replace(found.batch, created_by=_maker(by))
            async with _room(by, len(found.jobs)):
                await queue_batch(self._store, self._workspace.locks, batch, found.jobs)
        except Complaints as error:
            raise from_complaints(error) from None
        except (NotKept, BatchTaken) as error:
            raise Problem(409, str(error), AGAIN) from None
        return await self._batch(book_id)

    async def regenerate(
        self,
        book: Batch,
        pages: Sequence[int] | None,
        changes: Mapping[str, Any] | None = None,
        *,
        new_seed: bool = False,
        only_failed: bool = False,
    ) -> list[int]:
        """Pages of a book rendered again; which."""
        keep = checking(keep_patiently(self._workspace), self._admission.choices)

        def find(name: str) -> Workflow:  # as the page remembers it: an id, or the path of a template
            return self._admission.workflows.named(name, self._workspace.root)

        try:
            async with self._busy:
                await self._refresh(self._admission)
                return await regenerate(
                    self._store,
                    find,
                    keep,
                    book,
                    pages,
                    changes or {},
                    new_seed,
                    limit_kb=self._workspace.settings.job_limit_kb,
                    only_failed=only_failed,
                )
        except NoSuchPage as error:
            raise Problem(404, error.message, f"{error.remedy.capitalize()}: name one of them.") from None
        except PageUnderWay as error:
            raise Problem(409, error.message, "Wait until it has ended, or cancel it first.") from None
        except NotRegenerated as error:
            raise Problem(409, error.message, f"{error.remedy.replace(' with --page N', '').capitalize()}.") from None
        except (BadPage, NotKept) as error:
            raise Problem(409, str(error).replace(" with --set", ""), AGAIN) from None

    async def _batch(self, batch_id: str) -> Batch:
        found = await self._store.run(ops.find_batch, batch_id)
        if found is None:
            raise Problem(409, f"{batch_id} was removed at once", "Send it again.")
        return found


def _maker(by: Actor | None) -> int | None:
    return by.token_id if by is not None else None


def _room(by: Actor | None, count: int) -> AbstractAsyncContextManager[None]:
    return by.room(count) if by is not None else nullcontext()


def _check_bytes(size: int, members: str, command: str) -> None:
    if size > MOST_BYTES:
        words = (
            f"its {members} would take about {size // 1024**2:,} MB in the database: "
            f"one request may take {MOST_BYTES // 1024**2} MB"
        )
        raise Problem(409, words, f"Make its values shorter or fewer, or queue it with {command}.")


def _no_lists(name: str) -> Sequence[str]:
    raise ValueError(f"@{name[:100]} names a file, which is for the command line: send the values themselves")
