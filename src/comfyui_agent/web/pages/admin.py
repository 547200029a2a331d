"""The same for admins: what needs attention anywhere, with all that is known of it, and a book with its debug facts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.batches.members import settings_of
from comfyui_agent.batches.regeneration import page_of
from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.texts import counted, whole
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import BadCursor, JobFilter, JobPage
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.pages.batch_pace import stands
from comfyui_agent.web.pages.book import actions, around, pages_here
from comfyui_agent.web.pages.cells import batch_here, link, live_by_job, looks
from comfyui_agent.web.pages.servers import servers_part
from comfyui_agent.web.pages.windows import Choice
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

ON_A_PAGE = 25
SHOWN = 5
"""Of its runs; the page of the job has all."""
LONGEST = 20_000
DAY = 24 * 3600.0
CHANGES = 30
"""So many of the newest are on the screen; e3 audit has all."""


async def build(view: View) -> Screen:
    store = view.context.store
    page = await _failed(view)
    attempts = await asyncio.gather(*(store.run(ops.list_attempts, job.id) for job in page.jobs))
    rows = [
        Fragment(
            f"trouble-{number}",
            "admin_trouble.html",
            {"job": job, "told": explain(job, runs), "prompts": prompt_ids(runs), "errors": all_errors(job, runs)},
            key=(looks(job, None), len(runs)),
        )
        for number, (job, runs) in enumerate(zip(page.jobs, attempts, strict=True))
    ]
    whole = {
        "rows": rows,
        "is_whole": page.is_whole,
        "next": link(view, cursor=page.cursor) if page.cursor else "",
        "first": link(view, cursor=None) if view.asked("cursor") else "",
    }
    alerts = await store.run(ops.alerts, DAY)
    changes = await store.run(ops.audit_trail, most=CHANGES)
    servers = await servers_part(view)
    counts = await store.run(ops.count_jobs)
    fragments = (
        Fragment("troubles", "admin_troubles.html", whole, key=(tuple(job.id for job in page.jobs), page.cursor)),
        *rows,
        Fragment("alerts", "admin_alerts.html", {"alerts": alerts}, key=tuple(alert.id for alert in alerts)),
        servers,
        await _tokens(view),
        Fragment("audit", "admin_audit.html", {"rows": changes}, key=tuple(each.id for each in changes)),
    )
    out = sum(card.report.state != "up" for card in servers.values["servers"])
    words = [f"{counted(counts.attention, 'job needs', 'jobs need')} attention"]
    words += [f"{counted(len(alerts), 'alert')} in the last day"] if alerts else []
    words += [f"{counted(out, 'server')} not at work"] if out else []
    values = {"classes": _classes(view)}
    return Screen("admin.html", "Admin", f"{', '.join(words)}.", fragments, values, "admin")


async def _tokens(view: View) -> Fragment:
    access = await view.context.store.run(ops.read_access)
    tokens = [token for token in access.tokens if token.revoked_at is None]  # one that expired long ago is left out
    return Fragment("tokens", "admin_tokens.html", {"tokens": tokens, "is_closed": access.is_closed})


async def _failed(view: View) -> JobPage:
    asked = view.asked("class")
    if asked and asked not in set(FailureClass):
        raise NoScreen(f"there is no failure class {asked[:40]!r}: see /admin")
    try:
        wanted = JobFilter(attention=True, failure_class=asked or None)
        return await view.context.store.run(ops.job_page, wanted, view.asked("cursor") or None, ON_A_PAGE)
    except BadCursor:
        raise NoScreen("this part of the list is not there any more: begin at /admin") from None


def _classes(view: View) -> list[Choice]:
    asked = view.asked("class")
    every = [Choice("All", link(view, **{"class": None}, cursor=None), not asked)]
    return every + [
        Choice(each.value, link(view, **{"class": each.value}, cursor=None), asked == each.value)
        for each in FailureClass
        if each is not FailureClass.CANCELLED
    ]


def prompt_ids(attempts: Sequence[Attempt]) -> str:
    found = [attempt.prompt_id for attempt in attempts if attempt.prompt_id]
    before = f"{len(found) - SHOWN} before, " if len(found) > SHOWN else ""
    return before + ", ".join(found[-SHOWN:])


def all_errors(job: Job, attempts: Sequence[Attempt]) -> str:
    """What is on record about the last failures of a job, oldest first, as JSON."""
    found: list[Any] = [attempt.as_json() for attempt in attempts if attempt.error][-SHOWN:]
    return as_text(found or [{"failure_class": job.failure_class, "error_trace": job.error_trace}])


def as_text(value: Any) -> str:
    return whole(json.dumps(value, indent=2, ensure_ascii=False, default=str), LONGEST)


# A book.


async def build_book(view: View) -> Screen:
    book = await batch_here(view, BatchKind.BOOK)
    live = await live_by_job(view)
    pages = await pages_here(view, book)
    first, last = (page_of(pages[0]) - 1, page_of(pages[-1])) if pages else (0, 0)
    known = await view.context.store.run(ops.book_pages, book.id, after=first, until=last)
    rows = {row["page"]: row for row in known}
    fragments = [await actions(view, book)]
    for job in pages:
        run, row = live.get(job.id), rows.get(page_of(job), {})
        values = {"book": book, "job": job, "live": run, "page": page_of(job), "known": _facts(job, row), **_raw(row)}
        key = (looks(job, run), job.metadata, as_text(row))
        fragments.append(Fragment(f"page-{page_of(job)}", "admin_page.html", values, key))
    shown: dict[str, Any] = {"pages": [(page_of(job), _inputs(job, book)) for job in pages], **around(view, book)}
    title = str(book.metadata.get("title") or book.name or book.id)
    return Screen(
        "admin_book.html", title, await stands(view, book), tuple(fragments), {"book": book, **shown}, "admin"
    )


def _facts(job: Job, row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    kept = row.get("job_metadata")
    prompts = kept.get("prompt_ids", []) if isinstance(kept, dict) else []
    return [
        ("Job", job.config_name),
        ("Failure class", job.failure_class),
        ("Retries", job.retries_attempted),
        ("Runs", job.run_count),
        ("Last attempted", row.get("last_attempted_at")),
        ("Needs regeneration", "yes" if job.needs_regeneration else "no"),
        ("Server", job.server),
        ("Prompt ids", ", ".join(str(each) for each in prompts)),
        ("Hold", job.hold),
        ("Next try", job.next_attempt_at),
    ]


def _raw(row: Mapping[str, Any]) -> dict[str, str]:
    kept = row.get("job_metadata")
    overrides = kept.get("overrides") if isinstance(kept, dict) else None
    errors = row.get("image_error")
    return {
        "overrides": as_text(overrides) if overrides else "",
        "errors": as_text(errors) if errors else "",
        "error_count": str(len(errors)) if isinstance(errors, list) else "0",
    }


def _inputs(job: Job, book: Batch) -> list[tuple[str, str]]:
    """What a page is made with now: names, and values as they are typed."""
    inputs = settings_of(job, book)
    return [(str(name), value if isinstance(value, str) else as_text(value)) for name, value in inputs.items()]
