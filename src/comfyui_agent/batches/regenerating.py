"""Pages of a book rendered again: those that failed, or those that are named, with new inputs or a new seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from comfyui_agent.batches.books import page_again
from comfyui_agent.batches.sweeps import Keep
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job, JobId, NewJob
from comfyui_agent.domain.seeds import draw_seeds
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.store import Store


class NotRegenerated(Exception):
    """Pages that are not rendered again as things are: what is wrong, and what to do on a command line."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}: {remedy}")
        self.message = message
        self.remedy = remedy


class NoSuchPage(NotRegenerated):
    """A page that the book does not have."""


class PageUnderWay(NotRegenerated):
    """A page that waits or renders already."""


class NotFailed(NotRegenerated):
    """A page that is fine, where only failed ones may be named."""


def page_of(job: Job) -> int:
    """The number of a page, from 1."""
    return (job.batch_index or 0) + 1


def choose(jobs: Sequence[Job], pages: Sequence[int] | None, book_id: str, *, only_failed: bool = False) -> list[Job]:
    """The pages that are named, each once; or, with None, those that failed and were not cancelled.

    NoSuchPage, PageUnderWay, and with `only_failed` NotFailed, for the first that cannot be had.
    """
    if pages is None:
        cancelled = FailureClass.CANCELLED.value
        return [job for job in jobs if job.status is JobStatus.FAILED and job.failure_class != cancelled]
    known = {page_of(job): job for job in reversed(jobs)}  # of two that a hand has made one page, the first
    return [_chosen(known, page, book_id, only_failed) for page in dict.fromkeys(pages)]


def _chosen(known: Mapping[int, Job], page: int, book_id: str, only_failed: bool) -> Job:
    job = known.get(page)
    if job is None:
        raise NoSuchPage(f"{book_id} has no page {page}", f"it has {len(known)}")
    if job.status in (JobStatus.PENDING, JobStatus.PROCESSING):
        state = "waits already" if job.status is JobStatus.PENDING else "is rendering"
        raise PageUnderWay(f"page {page} of {book_id} {state}", f"cancel it first with e3 cancel {job.config_name}")
    if only_failed and job.status is not JobStatus.FAILED:
        raise NotFailed(f"page {page} of {book_id} has not failed", "name one that needs attention")
    return job


def wishes(
    chosen: Iterable[Job], changes: Mapping[str, Any], new_seed: bool, find: Callable[[str], Workflow], keep: Keep
) -> list[tuple[JobId, NewJob | None]]:
    """What the store is asked for: each page as it was, or as it is changed. BadPage if one cannot be."""
    if not changes and not new_seed:
        return [(job.id, None) for job in chosen]
    draw = _draw_seed if new_seed else None
    return [(job.id, page_again(job, changes, draw, find, keep)) for job in chosen]


def _draw_seed() -> int:
    return draw_seeds(1)[0]


async def regenerate(
    store: Store,
    find: Callable[[str], Workflow],
    keep: Keep,
    book: Batch,
    pages: Sequence[int] | None,
    changes: Mapping[str, Any],
    new_seed: bool,
    *,
    only_failed: bool = False,
) -> list[int]:
    """Submit pages of a book again, all of them or none; their numbers, less those that someone else was quicker with.

    Which pages: as `choose` says, with its errors. BadPage if new inputs do not fit one of them; what `keep` raises is
    passed on. `find` and `keep` are called from another thread.
    """
    jobs = [job async for job in store.members(book.id)]
    chosen = choose(jobs, pages, book.id, only_failed=only_failed)
    wanted = await asyncio.to_thread(wishes, chosen, changes, new_seed, find, keep)
    done = set(await store.wish_again(wanted, avoid_cache=not changes and not new_seed))
    return [page_of(job) for job in chosen if job.id in done]
