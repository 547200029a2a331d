"""The queue: counts first, then what is asked for, a part at a time; however many jobs there are."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from comfyui_agent.comfy.server_names import name_of
from comfyui_agent.domain.badges import BADGES
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, Job
from comfyui_agent.domain.rows import parsed
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import attention
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import BadCursor, JobFilter, JobPage
from comfyui_agent.store.records import Counts
from comfyui_agent.store.store import Store
from comfyui_agent.web.pages.cells import live_by_job, looks
from comfyui_agent.web.problems import Problem
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

AT_ONCE = 50
LONGEST = 200
FILTERS = ("q", "status", "workflow", "server", "class", "type", "batch")
"""What can stand in the address."""
ATTENTION = {"attention": True, "aside": False}
"""Of what failed: what needs attention, and what was cancelled or dismissed."""


@dataclass(frozen=True)
class Tab:
    """A state to look at, and how many jobs are in it."""

    status: str
    word: str
    count: int
    url: str
    is_current: bool


async def build(view: View) -> Screen:
    store, asked = view.context.store, _asked(view)
    cursor = view.asked("cursor")
    try:
        page = await store.run(ops.job_page, _wanted(asked), cursor or None, AT_ONCE)
    except BadCursor:
        raise NoScreen("this part of the list is not there: begin at /queue") from None
    counts = await store.run(ops.count_jobs)
    live = await live_by_job(view)
    lowest = await _lowest(store, page)
    return Screen(
        template="queue.html",
        title="Queue",
        sentence=_sentence(counts, asked),
        section="queue",
        fragments=(
            Fragment("queue-tabs", "queue_tabs.html", {"tabs": _tabs(counts, asked), "asked": asked}),
            Fragment(
                "queue-list",
                "queue_list.html",
                {
                    "page": page,
                    "live": {job.id: live.get(job.id) for job in page.jobs},
                    "notes": {job.id: _note(job) for job in page.jobs},
                    "asked": asked,
                    "next": _url(asked, page.cursor) if page.cursor else None,
                    "first": _url(asked) if cursor else None,
                    "lowest": lowest,
                },
                key=(
                    tuple((looks(job, live.get(job.id)), job.priority, job.workflow_id) for job in page.jobs),
                    page.cursor,
                    lowest,
                ),
            ),
        ),
        values={
            "asked": asked,
            "workflows": await _workflows(view, asked["workflow"]),
            "servers": [(url, name_of(url) or url) for url in await _servers(view, asked["server"])],
            "classes": [each.value for each in FailureClass],
            "is_filtered": any(asked[name] for name in FILTERS),
        },
    )


def _asked(view: View) -> dict[str, str]:
    return {name: view.asked(name).strip()[:LONGEST] for name in FILTERS}


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


def _url(asked: dict[str, str], cursor: str | None = None, **changed: str) -> str:
    said = {**asked, **changed, **({"cursor": cursor} if cursor else {})}
    query = urlencode({name: value for name, value in said.items() if value})
    return f"/queue?{query}" if query else "/queue"


def _tabs(counts: Counts, asked: dict[str, str]) -> list[Tab]:
    shown = [
        ("", "All", counts.total),
        ("processing", str(BADGES[JobStatus.PROCESSING]), counts.processing),
        ("pending", str(BADGES[JobStatus.PENDING]), counts.pending),
        ("attention", str(BADGES[JobStatus.FAILED]), counts.attention),
        ("done", str(BADGES[JobStatus.DONE]), counts.done),
        ("aside", "◌ Cancelled or dismissed", counts.failed - counts.attention),
    ]
    return [
        Tab(status, word, count, _url(asked, status=status), asked["status"] == status)
        for status, word, count in shown
        if count or status != "aside" or asked["status"] == status
    ]


def _sentence(counts: Counts, asked: dict[str, str]) -> str:
    if not counts.total:
        return "Nothing has been queued yet."
    parts = [
        f"{counts.processing:,} rendering" if counts.processing else "",
        f"{counts.pending:,} pending" if counts.pending or counts.processing else "",
        attention(counts.attention) if counts.attention else "",
        f"{counts.done:,} done",
    ]
    words = ", ".join(filter(None, parts))
    return f"Jobs with “{asked['q']}” in their name. Of all: {words}." if asked["q"] else f"{words}."


def _note(job: Job) -> str:
    """What tells a job from its neighbours: the values that a sweep gave it."""
    metadata = parsed(job.metadata)
    values = metadata.get("combination") if isinstance(metadata, dict) else None
    return ", ".join(f"{name} {value}" for name, value in values.items())[:LONGEST] if isinstance(values, dict) else ""


async def _lowest(store: Store, page: JobPage) -> int:
    """The priority of what runs next: whatever is below it runs before everything that waits."""
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
