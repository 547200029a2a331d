"""The page of a job: its results, inputs, runs and timeline, and actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.address import name_of
from comfyui_agent.domain.badges import badge_of
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.prompts import Graph
from comfyui_agent.domain.results import Result
from comfyui_agent.domain.sent_prompt import Sending
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import bytes_of
from comfyui_agent.domain.usual_inputs import usual_inputs, usual_values
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.rows import parsed_object
from comfyui_agent.usecases.takes import JobTake, takes_of
from comfyui_agent.web.explanations import explain
from comfyui_agent.web.html import seconds
from comfyui_agent.web.pages.cells import job_named, lowest_priority, maker, recipes_here, short_label
from comfyui_agent.web.screens import Fragment, Screen, View

LARGEST_SHOWN = 200_000
LONGEST_VALUE = 4_000
MOST_RESULTS = 60


async def build(view: View) -> Screen:
    store, job = view.context.store, await job_named(view, view.names["name"])
    attempts = await store.run(ops.list_attempts, job.id)
    live = next((run for run in await view.context.fleet.live() if run.job_id == job.id), None)
    batch = await store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    sending = await view.context.submissions.sending(job, attempts)
    results = await FILES.run(view.context.outputs.shown, job, MOST_RESULTS)
    path = await _path(view, job, results)
    graph_text = await FILES.run(_graph_text, sending.graph)
    lowest = await lowest_priority(view)
    whereabouts = await view.context.whereabouts(job)
    sent = sending.attempt
    key = (job.template_hash, job.inputs, job.workflow_id, sent)
    facts = {"job": job, "batch": batch, "maker": await maker(view, job), "models": sending.models}
    is_trouble = job.status is JobStatus.FAILED or (job.status is JobStatus.PENDING and job.error_trace)
    kept = parsed_object(job.pictures)
    inputs = {"given": [(each.name, _shown(each.value), each.node, kept.get(each.place)) for each in sending.given]}
    about = (await view.context.cells.of([job]))[job.id]
    copied = _copied(await FILES.run(_settings, sending))
    onward = {"job": job, "results": results, "copied": copied, "about": about, "takes": await _takes(view, job)}
    onward["upscalers"] = await upscalers(view)
    fragments = (
        Fragment("job-actions", {"job": job, "lowest": lowest, "bumped": _bumped(view, job, lowest)}),
        Fragment("job-picture", {"job": job, "live": live, "results": results, "about": about, "path": path}),
        Fragment("job-next", onward),
        Fragment("job-trouble", {"explanation": explain(job, attempts) if is_trouble else None}),
        Fragment("job-servers", {"servers": whereabouts.servers}),
        Fragment("job-facts", facts),
        Fragment("job-timeline", {"job": job, "attempts": attempts}),
        Fragment("job-attempts", {"attempts": attempts}),
        Fragment("job-inputs", inputs, key),
        Fragment("job-workflow", {"job": job, "text": graph_text, "sent": sent}, key),
    )
    values = {"job": job, "batch": batch, "about": about}
    return Screen("job.html", job.config_name, _sentence(job, live, whereabouts.sentence), fragments, values, "queue")


async def _takes(view: View, job: Job) -> list[tuple[JobTake, list[Result]]]:
    """What the job has made, each with its files."""
    if not job.take:
        return []
    takes = await takes_of(view.context.store, job)
    shown = view.context.outputs.shown
    return await FILES.run(lambda: [(take, shown(job.of_take(take.number, take.outputs), 1)) for take in takes])


async def _path(view: View, job: Job, results: Sequence[Result]) -> str:
    """Where the result lies on this machine, or all of them. Empty for who may be elsewhere, and for objects."""
    if not results or not await view.context.gate.is_open():
        return ""
    path = Path(view.context.workspace.results.address(job.outputs[0]))
    return str(path if len(job.outputs) == 1 else path.parent) if path.is_absolute() else ""


async def upscalers(view: View) -> list[str]:
    """The workflows that make a larger picture."""
    return [name for name, recipe in (await recipes_here(view)).items() if recipe.purpose == "upscale"]


async def large(view: View) -> Fragment:
    """The large view of a job: its result, how it was made, and what can be done next."""
    store, job = view.context.store, await job_named(view, view.names["name"])
    sending = await view.context.submissions.sending(job, await store.run(ops.list_attempts, job.id))
    batch = await store.run(ops.find_batch, job.batch_id) if job.batch_id else None
    about = (await view.context.cells.of([job]))[job.id]
    settings = await FILES.run(_settings, sending)
    results = await FILES.run(view.context.outputs.shown, job, MOST_RESULTS)
    values = {
        "job": job,
        "batch": batch,
        "about": about,
        "live": None,
        "label": short_label(batch, job) if batch else "",
        "results": results,
        "path": await _path(view, job, results),
        "settings": settings,
        "upscalers": await upscalers(view),
        "copied": _copied(settings),
    }
    return Fragment("job-large", values)


def _settings(sending: Sending) -> dict[str, Any]:
    """What was asked for, under the usual names, then whatever else was given."""
    usual = {place for places in usual_inputs(sending.graph).values() for place in places}
    others = {each.name: each.value for each in sending.given if each.place not in usual}
    return {name: value for name, value in {**usual_values(sending.graph), **others}.items() if value not in ("", None)}


def _copied(settings: dict[str, Any]) -> str:
    """Settings as text, to be pasted into a job file."""
    return "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())


def _bumped(view: View, job: Job, lowest: int) -> int | None:
    """The priority with which a job would run next, within the viewer's floor. None if it would not run earlier."""
    if view.is_admin:
        return lowest - 1
    found = max(lowest - 1, view.context.workspace.settings.user_priority_floor)
    return found if isinstance(job.priority, int) and found < job.priority else None


def _sentence(job: Job, live: LiveRun | None, whereabouts: str) -> str:
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
            return f"Pending, with priority {job.priority}{runs}. It {whereabouts}."
        case JobStatus.FAILED:
            return f"{badge_of(job).word}{'' if job.is_cancelled else runs.removeprefix(',')}."


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _graph_text(graph: Graph) -> str:
    """The workflow as JSON. Empty if it is too large for a page."""
    if not graph or bytes_of(graph) > LARGEST_SHOWN:  # indenting is far slower
        return ""
    text = json.dumps(graph, indent=2, ensure_ascii=False)
    return text if len(text) <= LARGEST_SHOWN else ""
