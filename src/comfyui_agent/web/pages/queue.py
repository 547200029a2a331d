"""The page of the queue: counts, filters, and the jobs in pages."""

from __future__ import annotations

from typing import Any

from comfyui_agent.comfy.server_names import name_of
from comfyui_agent.domain.badges import BADGES
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention, parsed
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter, JobPage
from comfyui_agent.store.records import Counts
from comfyui_agent.store.store import Store
from comfyui_agent.web.pages.cells import jobs_here, live_by_job, looks
from comfyui_agent.web.problems import Problem
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

AT_ONCE = 50
LONGEST = 200
FILTERS = ("q", "status", "workflow", "server", "class", "type", "batch")
"""The query parameters."""
ATTENTION = {"attention": True, "aside": False}
"""Failed jobs that need attention, and those that were cancelled or dismissed."""


async def build(view: View) -> Screen:
    store = view.context.store
    asked = {name: view.asked(name).strip()[:LONGEST] for name in FILTERS}
    page = await jobs_here(view, _wanted(asked), AT_ONCE, "/queue")
    counts = await store.run(ops.count_jobs)
    live = await live_by_job(view)
    lowest = await _lowest(store, page)
    jobs: dict[str, Any] = {
        "page": page,
        "live": {job.id: live.get(job.id) for job in page.jobs},
        "notes": {job.id: _note(job) for job in page.jobs},
        "asked": asked,
        "lowest": lowest,
        **view.pager(page.cursor),
    }
    rows = tuple((looks(job, live.get(job.id)), job.priority, job.workflow_id) for job in page.jobs)
    fragments = (
        Fragment("queue-tabs", {"tabs": _tabs(view, counts, asked["status"]), "asked": asked}),
        Fragment("queue-list", jobs, (rows, page.cursor, lowest)),
    )
    values = {
        "asked": asked,
        "workflows": await _workflows(view, asked["workflow"]),
        "servers": [(url, name_of(url) or url) for url in await _servers(view, asked["server"])],
        "classes": [each.value for each in FailureClass],
    }
    return Screen("queue.html", "Queue", _sentence(counts, asked["q"]), fragments, values, "queue")


def _wanted(asked: dict[str, str]) -> JobFilter:
    status = asked["status"]
    known = [each.value for each in JobStatus]
    if status and status not in (*known, *ATTENTION):
        raise NoScreen(f"there is no state {status!r}: it is one of {', '.join([*known, *ATTENTION])}")
    return JobFilter(
        status=JobStatus(status) if status in known else None,
        attention=ATTENTION.get(status),
        text=asked["q"],
        batch_id=asked["batch"] or None,
        workflow_id=asked["workflow"] or None,
        server=asked["server"] or None,
        job_type=asked["type"] or None,
        failure_class=asked["class"] or None,
    )


def _tabs(view: View, counts: Counts, current: str) -> list[dict[str, Any]]:
    """A tab for each state, with how many jobs are in it."""
    states = [
        ("", "All", counts.total),
        ("processing", str(BADGES[JobStatus.PROCESSING]), counts.processing),
        ("pending", str(BADGES[JobStatus.PENDING]), counts.pending),
        ("attention", str(BADGES[JobStatus.FAILED]), counts.attention),
        ("done", str(BADGES[JobStatus.DONE]), counts.done),
        ("aside", "◌ Cancelled or dismissed", counts.failed - counts.attention),
    ]
    return [
        {"status": status, "label": label, "count": count, "url": view.link(status=status or None, cursor=None)}
        for status, label, count in states
        if count or status != "aside" or current == status
    ]


def _sentence(counts: Counts, search: str) -> str:
    if not counts.total:
        return "Nothing has been queued yet."
    parts = [
        f"{counts.processing:,} rendering" if counts.processing else "",
        f"{counts.pending:,} pending" if counts.pending or counts.processing else "",
        attention(counts.attention) if counts.attention else "",
        f"{counts.done:,} done",
    ]
    text = ", ".join(filter(None, parts))
    return f"Jobs with “{search}” in their name. Of all: {text}." if search else f"{text}."


def _note(job: Job) -> str:
    """The values that a sweep gave a job."""
    metadata = parsed(job.metadata)
    values = metadata.get("combination") if isinstance(metadata, dict) else None
    return ", ".join(f"{name} {value}" for name, value in values.items())[:LONGEST] if isinstance(values, dict) else ""


async def _lowest(store: Store, page: JobPage) -> int:
    """The lowest priority of the jobs that wait. A job below it runs next."""
    seen = [job.priority for job in page.jobs if job.status is JobStatus.PENDING and isinstance(job.priority, int)]
    first = await store.run(ops.job_page, JobFilter(status=JobStatus.PENDING), None, 1)
    seen += [job.priority for job in first.jobs if isinstance(job.priority, int)]
    return min(seen, default=DEFAULT_PRIORITY)


async def _workflows(view: View, current: str) -> list[str]:
    try:
        known = list(await view.context.submissions.recipes())
    except Problem:
        known = []
    return sorted({*known, *([current] if current else [])})


async def _servers(view: View, current: str) -> list[str]:
    return list(dict.fromkeys([*await view.context.fleet.known(), *([current] if current else [])]))
