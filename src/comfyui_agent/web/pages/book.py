"""The page of a book: a card for each page, with its picture, badge and latest error; for admins, debug facts."""

from __future__ import annotations

from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.regeneration import page_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.html import json_text
from comfyui_agent.web.pages.cells import batch_here, live_by_job, looks, maker, stands
from comfyui_agent.web.screens import Fragment, Screen, View

ON_A_SCREEN = 60
COUNTED = 1_000


async def build(view: View) -> Screen:
    book = await batch_here(view, BatchKind.BOOK)
    live = await live_by_job(view)
    pages = await _pages_here(view, book)
    about = await view.context.cells.of(pages)
    fragments = [await _actions(view, book)]
    for job in pages:
        run, explanation = live.get(job.id), None
        if job.status is JobStatus.FAILED or (job.error_trace and job.status is not JobStatus.DONE):
            explanation = explain(job, await view.context.store.run(ops.list_attempts, job.id))
        values = {"book": book, "job": job, "live": run, "page": page_of(job), "explanation": explanation}
        values["about"] = about[job.id]
        key = (view.role, looks(job, run), about[job.id])
        fragments.append(Fragment(f"page-{page_of(job)}", values, key, "book_page.html"))
    numbers = [page_of(job) for job in pages]
    values = {"book": book, "pages": numbers, "maker": await maker(view, book), "first": _first_page(view, book)}
    return Screen("book.html", _title_of(book), await stands(view, book), tuple(fragments), values, "books")


async def build_for_admins(view: View) -> Screen:
    book = await batch_here(view, BatchKind.BOOK)
    live = await live_by_job(view)
    pages = await _pages_here(view, book)
    first, last = (page_of(pages[0]) - 1, page_of(pages[-1])) if pages else (0, 0)
    known = await view.context.store.run(ops.book_pages, book.id, after=first, until=last)
    rows = {row["page"]: row for row in known}
    about = await view.context.cells.of(pages)
    fragments = [await _actions(view, book)]
    for job in pages:
        run, row = live.get(job.id), rows.get(page_of(job), {})
        values = {"book": book, "job": job, "live": run, "page": page_of(job), "row": row, "about": about[job.id]}
        key = (looks(job, run), job.metadata, json_text(row))
        fragments.append(Fragment(f"page-{page_of(job)}", values, key, "admin_page.html"))
    shown = {
        "book": book,
        "pages": [(page_of(job), settings_of(job, book)) for job in pages],
        "first": _first_page(view, book),
    }
    return Screen("admin_book.html", _title_of(book), await stands(view, book), tuple(fragments), shown, "admin")


def _title_of(book: Batch) -> str:
    return str(book.metadata.get("title") or book.name or book.id)


async def _pages_here(view: View, book: Batch) -> list[Job]:
    """The pages on this screen, in order. If two rows have the same page, the first counts."""
    first = _first_page(view, book)
    found: dict[int, Job] = {}
    for job in await view.context.store.run(ops.members_at, book.id, range(first, first + ON_A_SCREEN)):
        found.setdefault(page_of(job), job)
    return list(found.values())


async def _actions(view: View, book: Batch) -> Fragment:
    """Actions of the whole book. “Retry all failed pages” leaves cancelled and dismissed ones alone."""
    needy = await view.context.store.run(ops.job_page, JobFilter(attention=True, batch_id=book.id), None, COUNTED)
    return Fragment("book-actions", {"book": book, "failed_pages": [page_of(job) for job in needy.jobs]})


def _first_page(view: View, book: Batch) -> int:
    """The index of the first page on this screen."""
    asked = max(1, view.number("from", 1, max(1, book.total)))
    return (asked - 1) // ON_A_SCREEN * ON_A_SCREEN
