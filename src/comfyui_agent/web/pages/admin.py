"""The pages for admins: everything that needs attention with raw errors, and a book with its debug facts."""

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
from comfyui_agent.store.job_pages import JobFilter, JobPage
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.pages.batch_pace import stands
from comfyui_agent.web.pages.book import actions, pager, pages_here, title_of
from comfyui_agent.web.pages.cells import batch_here, jobs_here, live_by_job, looks
from comfyui_agent.web.pages.servers import servers_part
from comfyui_agent.web.screens import Choice, Fragment, NoScreen, Screen, View

ON_A_PAGE = 25
SHOWN = 5
"""Runs per job. The page of the job has all."""
LONGEST = 20_000
DAY = 24 * 3600.0
CHANGES = 30
"""Entries of the audit trail. `e3 audit` has all."""


async def build(view: View) -> Screen:
    store = view.context.store
    page = await _failed(view)
    attempts = await asyncio.gather(*(store.run(ops.list_attempts, job.id) for job in page.jobs))
    rows = [
        Fragment(
            f"trouble-{number}",
            {
                "job": job,
                "explanation": explain(job, runs),
                "prompts": prompt_ids(runs),
                "errors": all_errors(job, runs),
            },
            key=(looks(job, None), len(runs)),
            template="admin_trouble.html",
        )
        for number, (job, runs) in enumerate(zip(page.jobs, attempts, strict=True))
    ]
    troubles = {"rows": rows, "is_whole": page.is_whole, **view.pager(page.cursor)}
    listed = (tuple(job.id for job in page.jobs), page.cursor)
    alerts = await store.run(ops.alerts, DAY)
    changes = await store.run(ops.audit_trail, most=CHANGES)
    servers = await servers_part(view)
    counts = await store.run(ops.count_jobs)
    fragments = (
        Fragment("troubles", troubles, listed, "admin_troubles.html"),
        *rows,
        Fragment("alerts", {"alerts": alerts}, tuple(alert.id for alert in alerts), "admin_alerts.html"),
        servers,
        await _tokens(view),
        Fragment("audit", {"rows": changes}, tuple(each.id for each in changes), "admin_audit.html"),
    )
    out = sum(card.report.state != "up" for card in servers.values["servers"])
    findings = [f"{counted(counts.attention, 'job needs', 'jobs need')} attention"]
    findings += [f"{counted(len(alerts), 'alert')} in the last day"] if alerts else []
    findings += [f"{counted(out, 'server')} not at work"] if out else []
    return Screen("admin.html", "Admin", f"{', '.join(findings)}.", fragments, {"classes": _classes(view)}, "admin")


async def _tokens(view: View) -> Fragment:
    access = await view.context.store.run(ops.read_access)
    tokens = [token for token in access.tokens if token.revoked_at is None]
    return Fragment("tokens", {"tokens": tokens, "is_closed": access.is_closed}, template="admin_tokens.html")


async def _failed(view: View) -> JobPage:
    asked = view.asked("class")
    if asked and asked not in set(FailureClass):
        raise NoScreen(f"there is no failure class {asked[:40]!r}: see /admin")
    return await jobs_here(view, JobFilter(attention=True, failure_class=asked or None), ON_A_PAGE, "/admin")


def _classes(view: View) -> list[Choice]:
    asked = view.asked("class")
    every = [Choice("All", view.link(**{"class": None}, cursor=None), not asked)]
    return every + [
        Choice(each.value, view.link(**{"class": each.value}, cursor=None), asked == each.value)
        for each in FailureClass
        if each is not FailureClass.CANCELLED
    ]


def prompt_ids(attempts: Sequence[Attempt]) -> str:
    found = [attempt.prompt_id for attempt in attempts if attempt.prompt_id]
    before = f"{len(found) - SHOWN} before, " if len(found) > SHOWN else ""
    return before + ", ".join(found[-SHOWN:])


def all_errors(job: Job, attempts: Sequence[Attempt]) -> str:
    """The recorded errors of the last attempts as JSON, oldest first."""
    found: list[Any] = [attempt.as_json() for attempt in attempts if attempt.error][-SHOWN:]
    return as_text(found or [{"failure_class": job.failure_class, "error_trace": job.error_trace}])


def as_text(value: Any) -> str:
    return whole(json.dumps(value, indent=2, ensure_ascii=False, default=str), LONGEST)


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
        fragments.append(Fragment(f"page-{page_of(job)}", values, key, "admin_page.html"))
    shown = {"book": book, "pages": [(page_of(job), _inputs(job, book)) for job in pages], **pager(view, book)}
    return Screen("admin_book.html", title_of(book), await stands(view, book), tuple(fragments), shown, "admin")


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
    """The inputs of a page: names, and values as people type them."""
    inputs = settings_of(job, book)
    return [(str(name), value if isinstance(value, str) else as_text(value)) for name, value in inputs.items()]
