"""The pages that list batches and books: the state of each, and some of its pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.domain.badges import BATCH_MARKS
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_orders import BadCursor
from comfyui_agent.store.store import Store
from comfyui_agent.web.pages.cells import live_by_job, looks, newest_results, took
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

ON_A_PAGE = 20
IN_A_STRIP = 8


async def build(view: View) -> Screen:
    """All batches, those of one kind, or all books."""
    noun, nouns = ("book", "books") if view.path == "/books" else ("batch", "batches")
    asked = "book" if noun == "book" else view.asked("kind")
    if asked and asked not in set(BatchKind):
        raise NoScreen(f"there are no batches of the kind {asked[:40]!r}: see /batches")
    batches, fragments = await _list(view, BatchKind(asked) if asked else None)
    nothing = "No batch of this kind." if view.asked("kind") else f"No {nouns} yet."
    summary = _summary(batches, noun, nouns) if batches else nothing
    return Screen("batches.html", nouns.capitalize(), summary, fragments, section=nouns)


async def _list(view: View, kind: BatchKind | None) -> tuple[list[Batch], tuple[Fragment, ...]]:
    """A page of the list. The list is one fragment that changes with its members; each batch in it is another."""
    store = view.context.store
    try:
        page = await store.run(ops.batch_page, kind, view.asked("cursor") or None, ON_A_PAGE)
    except BadCursor:
        raise NoScreen("this part of the list is not there any more: begin at its first page") from None
    live = await live_by_job(view)
    strips = await asyncio.gather(*(_strip(store, batch) for batch in page.batches))
    about = await view.context.cells.of(job for jobs in strips for job in jobs)
    rows = []
    for number, (batch, jobs) in enumerate(zip(page.batches, strips, strict=True)):
        members = [(job, live.get(job.id), about[job.id]) for job in jobs]
        values: dict[str, Any] = {
            "batch": batch,
            "mark": "○" if batch.is_paused else BATCH_MARKS[batch.status],
            "sentence": sentence(batch),
            "took": took(batch, ", took "),
            "members": members,
            "room": IN_A_STRIP,
        }
        looked = tuple((looks(job, run), facts) for job, run, facts in members)
        key = (batch.id, values["mark"], values["sentence"], looked)
        rows.append(Fragment(f"batch-{number}", values, key, "batch_row.html"))
    values = {"rows": rows, "kind": kind.value if kind else "", "cursor": page.cursor}
    listed = (tuple(batch.id for batch in page.batches), page.cursor)
    return page.batches, (Fragment("batches", values, listed, "batch_rows.html"), *rows)


async def _strip(store: Store, batch: Batch) -> list[Job]:
    """The newest results of a batch; of a book its first pages."""
    if batch.kind is BatchKind.BOOK:
        return await store.run(ops.members_at, batch.id, range(IN_A_STRIP))
    return await newest_results(store, batch, IN_A_STRIP)


def _summary(batches: Sequence[Batch], one: str, many: str) -> str:
    at_work = [batch for batch in batches if not batch.status.has_ended]
    needy = sum(batch.attention for batch in batches)
    need = f", {attention(needy)}" if needy else ""
    if not at_work:
        return f"Nothing is under way{need}."
    total, done = sum(batch.total for batch in at_work), sum(batch.done for batch in at_work)
    return f"{counted(len(at_work), one, many)} under way, {done:,} of {total:,} done{need}."
