"""The page of a job: its results, inputs, runs and timeline, and actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.server_names import name_of
from comfyui_agent.domain.attempts import DONE, Attempt
from comfyui_agent.domain.badges import BADGES, badge_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, Job
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.sizes import bytes_of
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import parsed
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.web.explanations import Explanation, explain
from comfyui_agent.web.html import parsed as moment_of
from comfyui_agent.web.html import seconds
from comfyui_agent.web.job_lookup import job_named
from comfyui_agent.web.pages.cells import maker
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View
from comfyui_agent.web.sent_workflow import sending_of
from comfyui_agent.web.threads import FILES

LARGEST_SHOWN = 200_000
LONGEST_VALUE = 4_000
MOST_RESULTS = 60
MOST_ATTEMPTS = 50
HOLDS = {
    "backoff": "It was tried and runs again after a pause",
    "paused": "Its batch is paused",
    "filling": "Its batch is still being put together",
    "turn": "Pages of its book run one after the other",
    "burst": "It is for a later burst",
}


@dataclass(frozen=True)
class Run:
    """An attempt with how long it took and the server's message."""

    attempt: Attempt
    took: str
    message: str


@dataclass(frozen=True)
class Moment:
    """A point of the timeline. `then` says what followed, and for how long."""

    word: str
    at: str | None
    then: str = ""
    mark: str = ""


async def build(view: View) -> Screen:
    store, name = view.context.store, view.names["name"]
    job = await job_named(store, name)
    if job is None:
        raise NoScreen(f"there is no job {name[:200]!r}: look for it in the queue")
    attempts = await store.run(ops.list_attempts, job.id)
    live = next((run for run in await view.context.fleet.live() if run.job_id == job.id), None)
    batch = await store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    sending = await sending_of(view.context, job, attempts)
    results = await FILES.run(view.context.outputs.shown, job, MOST_RESULTS)
    graph_text = await FILES.run(_graph_text, sending.graph)
    first = await store.run(ops.job_page, JobFilter(status=JobStatus.PENDING), None, 1)
    lowest = next((each.priority for each in first.jobs if isinstance(each.priority, int)), DEFAULT_PRIORITY)
    sent = sending.attempt
    key = (job.template_hash, job.inputs, job.workflow_id, sent)
    facts = {
        "job": job,
        "batch": batch,
        "pages": _page_of(job, batch),
        "maker": await maker(view, job),
        "models": sending.models,
    }
    runs = {"runs": [_run(each) for each in attempts[-MOST_ATTEMPTS:]], "count": len(attempts)}
    inputs = {"given": [(each.name, _shown(each.value), each.node) for each in sending.given]}
    fragments = (
        Fragment("job-actions", {"job": job, "lowest": lowest, "bumped": _bumped(view, job, lowest)}),
        Fragment("job-picture", {"job": job, "live": live, "results": results}),
        Fragment("job-trouble", {"explanation": _explanation(job, attempts)}),
        Fragment("job-facts", facts),
        Fragment("job-timeline", {"moments": _timeline(job, attempts)}),
        Fragment("job-attempts", runs),
        Fragment("job-inputs", inputs, key),
        Fragment("job-workflow", {"job": job, "text": graph_text, "sent": sent}, key),
    )
    values = {"job": job, "batch": batch}
    return Screen("job.html", job.config_name, _sentence(job, live), fragments, values, "queue")


def _bumped(view: View, job: Job, lowest: int) -> int | None:
    """The priority with which a job would run next, within the viewer's floor. None if it would not run earlier."""
    if view.is_admin:
        return lowest - 1
    found = max(lowest - 1, view.context.workspace.settings.user_priority_floor)
    return found if isinstance(job.priority, int) and found < job.priority else None


def _sentence(job: Job, live: LiveRun | None) -> str:
    runs = "" if job.run_count < 2 else f", after {job.run_count} runs"
    at = f" at {name_of(job.server)}" if job.server else ""
    match job.status:
        case JobStatus.DONE:
            took = f" in {seconds(job.duration)}" if job.duration is not None else ""
            return f"Done{took}{at}{runs}."
        case JobStatus.PROCESSING:
            if live is not None and live.stage == "rendering" and live.steps:
                return f"Rendering{at}, step {live.step} of {live.steps}."
            if live is not None and live.stage == "away":
                return f"Waits for {name_of(job.server or '')}, which does not answer."
            return f"Rendering{at}." if live is None or live.stage != "waiting" else f"Next{at}."
        case JobStatus.PENDING:
            text = f"Pending, with priority {job.priority}"
            if job.waits_for_server:
                return f"{text}. It {job.waiting_words}."
            return f"{text}. {HOLDS[job.hold]}." if job.hold in HOLDS else f"{text}{runs}."
        case JobStatus.FAILED:
            return f"{badge_of(job).word}{'' if job.is_cancelled else runs.removeprefix(',')}."


def _page_of(job: Job, batch: Batch | None) -> str:
    if batch is None or not isinstance(job.batch_index, int):
        return ""
    noun = "page" if batch.kind is BatchKind.BOOK else "number"
    return f"{noun} {job.batch_index + 1} of {batch.total}"


def _timeline(job: Job, attempts: Sequence[Attempt]) -> list[Moment]:
    """The moments from submission to end."""
    last = job.created_at
    first = attempts[0].started_at if attempts else job.start_time
    found = [Moment("Submitted", job.created_at, _lasted("Waited", job.created_at, first))]
    for attempt in attempts[-MOST_ATTEMPTS:]:
        at = f" at {name_of(attempt.server)}" if attempt.server else ""
        word = f"Started{at}" if len(attempts) == 1 else f"Run {attempt.number}{at}"
        if attempt.outcome is None and job.waits_for_server:
            found.append(Moment(word, attempt.started_at))
            found.append(Moment("Its server stopped answering", job.lost_at))
            continue
        how = "Rendered" if attempt.outcome == DONE else "Failed after"
        found.append(Moment(word, attempt.started_at, _lasted(how, attempt.started_at, attempt.ended_at)))
        last = attempt.ended_at
    if job.status in (JobStatus.DONE, JobStatus.FAILED):
        badge = BADGES[job.status] if job.dismissed_at and not job.is_cancelled else badge_of(job)
        found.append(Moment(badge.word, job.end_time or last, mark=badge.mark))
        if job.dismissed_at:
            found.append(Moment("Dismissed", job.dismissed_at))
    elif job.next_attempt_at and job.status is JobStatus.PENDING:
        found.append(Moment("Runs again", job.next_attempt_at))
    return found


def _lasted(word: str, begin: str | None, end: str | None) -> str:
    began, ended = moment_of(begin), moment_of(end)
    if began is None or ended is None or ended < began:
        return ""
    return f"{word} {seconds((ended - began).total_seconds())}".strip()


def _explanation(job: Job, attempts: Sequence[Attempt]) -> Explanation | None:
    """The explanation of a failed job, or of the last failure of one that waits for a retry."""
    is_trouble = job.status is JobStatus.FAILED or (job.status is JobStatus.PENDING and job.error_trace)
    return explain(job, attempts) if is_trouble else None


def _run(attempt: Attempt) -> Run:
    error = parsed(attempt.error)
    message = error.get("message", "") if isinstance(error, Mapping) else error or ""
    return Run(attempt, _lasted("", attempt.started_at, attempt.ended_at), str(message))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _graph_text(graph: Graph) -> str:
    """The workflow as JSON. Empty if it is too large for a page."""
    if not graph or bytes_of(graph) > LARGEST_SHOWN:  # indenting is far slower
        return ""
    text = json.dumps(graph, indent=2, ensure_ascii=False)
    return text if len(text) <= LARGEST_SHOWN else ""
