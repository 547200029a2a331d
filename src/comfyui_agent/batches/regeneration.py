"""Rendering pages of a book again, with new inputs or a new seed if wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from comfyui_agent.batches.batch_writer import THREADS
from comfyui_agent.batches.books import BadPage, page_again
from comfyui_agent.batches.sweep_request import Keep
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job, JobId, NewJob
from comfyui_agent.domain.seeds import draw_seeds
from comfyui_agent.domain.sizes import too_large
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store


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
    """The number of a page, counted from 1."""
    return (job.batch_index or 0) + 1


def choose(jobs: Sequence[Job], pages: Sequence[int] | None, book_id: str, *, only_failed: bool = False) -> list[Job]:
    """The named pages, each once. With None, the pages that need attention.

    NotRegenerated for the first page that cannot be chosen, or that did not fail with `only_failed`.
    """
    if pages is None:
        return [job for job in jobs if job.needs_attention]
    known = {page_of(job): job for job in reversed(jobs)}  # the first counts if someone gave two the same number
    return [_chosen(known, page, book_id, only_failed) for page in dict.fromkeys(pages)]


def _chosen(known: Mapping[int, Job], page: int, book_id: str, only_failed: bool) -> Job:
    job = known.get(page)
    if job is None:
        raise NoSuchPage(f"{book_id} has no page {page}", f"it has {counted(len(known), 'page')}")
    if job.status in (JobStatus.PENDING, JobStatus.PROCESSING):
        state = "waits already" if job.status is JobStatus.PENDING else "is rendering"
        raise PageUnderWay(f"page {page} of {book_id} {state}", f"cancel it first with e3 cancel {job.config_name}")
    if only_failed and job.status is not JobStatus.FAILED:
        raise NotRegenerated(f"page {page} of {book_id} has not failed", "name one that needs attention")
    return job


def changed_pages(
    chosen: Iterable[Job],
    book: Batch,
    changes: Mapping[str, Any],
    new_seed: bool,
    find: Callable[[str], Workflow],
    keep: Keep,
    limit_kb: int,
) -> list[tuple[JobId, NewJob]]:
    """The changed pages. BadPage if one cannot be changed."""
    draw = (lambda: draw_seeds(1)[0]) if new_seed else None
    found = []
    for job in chosen:
        changed = page_again(job, book, changes, draw, find, keep)
        problem = too_large(changed.inputs, changed.metadata, limit_kb)
        if problem:
            raise BadPage(f"{job.config_name}: {problem}")
        found.append((job.id, changed))
    return found


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
    """Submit pages of a book again, all of them or none. Returns the numbers of those that this call submitted.

    NotRegenerated if a page cannot be chosen or there is none, BadPage if new inputs do not fit or are too large.
    Errors of `keep` are passed on. `find` and `keep` are called from another thread.
    """
    jobs = [job async for job in ops.batch_members(store, book.id)]
    chosen = choose(jobs, pages, book.id, only_failed=only_failed)
    wanted: list[tuple[JobId, NewJob | None]] = [(job.id, None) for job in chosen]
    if changes or new_seed:
        found = [await store.run(ops.find_job_by_id, job.id) for job in chosen]
        whole = [job for job in found if job is not None]
        wanted = [*await THREADS.run(changed_pages, whole, book, changes, new_seed, find, keep, limit_kb)]
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
