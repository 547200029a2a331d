"""The page of a book: a card for each page, with its picture, badge and latest error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from comfyui_agent.batches.regeneration import page_of
from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.pages.cells import batch_here, live_by_job, looks, maker, stands
from comfyui_agent.web.screens import Fragment, Screen, View

ON_A_SCREEN = 60
COUNTED = 1_000


async def build(view: View) -> Screen:
    book = await batch_here(view, BatchKind.BOOK)
    live = await live_by_job(view)
    pages = await pages_here(view, book)
    attempts = await _attempts(view, pages)
    fragments = [await actions(view, book)]
    for job in pages:
        run = live.get(job.id)
        explanation = explain(job, attempts[job.id]) if job.id in attempts else None
        values = {"book": book, "job": job, "live": run, "page": page_of(job), "explanation": explanation}
        fragments.append(Fragment(f"page-{page_of(job)}", values, (view.role, looks(job, run)), "book_page.html"))
    values = {
        "book": book,
        "pages": [page_of(job) for job in pages],
        "maker": await maker(view, book),
        **pager(view, book),
    }
    return Screen("book.html", title_of(book), await stands(view, book), tuple(fragments), values, "books")


def title_of(book: Batch) -> str:
    return str(book.metadata.get("title") or book.name or book.id)


async def pages_here(view: View, book: Batch) -> list[Job]:
    """The pages on this screen, in order. If two rows have the same page, the first counts."""
    first = _first(view, book)
    found: dict[int, Job] = {}
    for job in await view.context.store.run(ops.members_at, book.id, range(first, first + ON_A_SCREEN)):
        found.setdefault(page_of(job), job)
    return list(found.values())


async def _attempts(view: View, pages: Sequence[Job]) -> dict[int, Sequence[Attempt]]:
    """The attempts of the pages that failed, or that failed before and are tried again."""
    failed = [
        job for job in pages if job.status is JobStatus.FAILED or (job.error_trace and job.status is not JobStatus.DONE)
    ]
    found = await asyncio.gather(*(view.context.store.run(ops.list_attempts, job.id) for job in failed))
    return {job.id: attempts for job, attempts in zip(failed, found, strict=True)}


async def actions(view: View, book: Batch) -> Fragment:
    """Actions of the whole book. “Retry all failed pages” leaves cancelled and dismissed ones alone."""
    needy = await view.context.store.run(ops.job_page, JobFilter(attention=True, batch_id=book.id), None, COUNTED)
    return Fragment("book-actions", {"book": book, "failed_pages": [page_of(job) for job in needy.jobs]})


def pager(view: View, book: Batch) -> dict[str, str]:
    """Links to the pages before and after, in a long book."""
    first = _first(view, book)
    last = min(first + ON_A_SCREEN, book.total)
    return {
        "before": view.link(**{"from": first - ON_A_SCREEN + 1}) if first else "",
        "after": view.link(**{"from": last + 1}) if last < book.total else "",
        "words": f"Pages {first + 1:,} to {last:,} of {book.total:,}" if book.total > ON_A_SCREEN else "",
    }


def _first(view: View, book: Batch) -> int:
    asked = max(1, view.number("from", 1, max(1, book.total)))
    return (asked - 1) // ON_A_SCREEN * ON_A_SCREEN
