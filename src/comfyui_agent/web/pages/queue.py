"""The page of the queue: counts, filters, and the jobs in pages."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.records import Counts
from comfyui_agent.web.pages.cells import jobs_here, live_by_job, looks, lowest_priority, recipes_here
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

AT_ONCE = 50
LONGEST = 200
FILTERS = ("q", "status", "workflow", "server", "class", "type", "batch")
ATTENTION = {"attention": True, "aside": False}
"""Failed jobs that need attention, and those that were cancelled or dismissed."""


async def build(view: View) -> Screen:
    store = view.context.store
    asked = {name: view.asked(name).strip()[:LONGEST] for name in FILTERS}
    page = await jobs_here(view, _wanted(asked), AT_ONCE, "/queue")
    counts = await store.run(ops.count_jobs)
    live = await live_by_job(view)
    lowest = await lowest_priority(view)
    jobs: dict[str, Any] = {
        "page": page,
        "live": {job.id: live.get(job.id) for job in page.jobs},
        "about": await view.context.cells.of(page.jobs),
        "asked": asked,
        "lowest": lowest,
    }
    rows = tuple((looks(job, live.get(job.id)), job.priority, job.workflow_id) for job in page.jobs)
    fragments = (
        Fragment("queue-tabs", {"counts": counts, "asked": asked}),
        Fragment("queue-list", jobs, (rows, page.cursor, lowest)),
    )
    workflows = await recipes_here(view)
    servers = await view.context.fleet.known()
    values = {
        "asked": asked,
        "workflows": sorted(filter(None, {*workflows, asked["workflow"]})),
        "servers": list(filter(None, dict.fromkeys([*servers, asked["server"]]))),
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
