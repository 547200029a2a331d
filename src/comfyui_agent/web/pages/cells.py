"""What several pages need to show a job or a batch."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from comfyui_agent.access.problem import Problem
from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.batches.members import label_of, settings_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.binding import Recipe
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_orders import BadCursor
from comfyui_agent.store.job_pages import JobFilter, JobPage
from comfyui_agent.store.store import Store
from comfyui_agent.web.cell_facts import Facts
from comfyui_agent.web.html import lasted, shown
from comfyui_agent.web.screens import NoScreen, View


async def batch_here(view: View, kind: BatchKind | None = None) -> Batch:
    """The batch in the path. NoScreen if there is none of that kind."""
    name = view.names["book_id" if kind is BatchKind.BOOK else "batch_id"]
    batch = await view.context.store.run(ops.find_batch, name)
    if batch is None or (kind is not None and batch.kind is not kind):
        what, where = ("book", "/books") if kind is BatchKind.BOOK else ("batch", "/batches")
        raise NoScreen(f"there is no {what} {name!r}: see {where}")
    return batch


async def job_named(view: View, name: str) -> Job:
    """The job with a name or an id. NoScreen if there is none."""
    job = await view.context.job_named(name)
    if job is None:
        raise NoScreen(f"there is no job {name[:200]!r}: look for it in the queue")
    return job


async def jobs_here(view: View, wanted: JobFilter, most: int, start: str) -> JobPage:
    """A page of jobs at the cursor in the query. `start` says where the list begins, if the cursor is bad."""
    try:
        return await view.context.store.run(ops.job_page, wanted, view.asked("cursor") or None, most)
    except BadCursor:
        raise NoScreen(f"this part of the list is not there any more: begin at {start}") from None


async def recipes_here(view: View) -> Mapping[str, Recipe]:
    """What `workflows.yaml` names. Nothing while it is wrong."""
    try:
        return await view.context.submissions.recipes()
    except Problem:
        return {}


async def maker(view: View, made: Job | Batch) -> str:
    """The name of the token that made something. Empty if none did."""
    if made.created_by is None:
        return ""
    return await view.context.store.run(ops.token_name, made.created_by) or f"token {made.created_by}"


async def lowest_priority(view: View) -> int:
    """The lowest priority of the jobs that wait. A job below it runs next."""
    first = await view.context.store.run(ops.job_page, JobFilter(status=JobStatus.PENDING), None, 1)
    return next((job.priority for job in first.jobs if isinstance(job.priority, int)), DEFAULT_PRIORITY)


async def live_by_job(view: View) -> dict[int, LiveRun]:
    return {run.job_id: run for run in await view.context.fleet.live()}


def looks(job: Job | None, live: LiveRun | None) -> Hashable:
    """A key that changes whenever the frame of a job looks different."""
    if job is None:
        return None
    at_work = (live.stage, live.step, live.steps, live.preview) if live else None
    ended = (job.outputs, job.failure_class, job.error_trace, job.duration, job.dismissed_at)
    return job.id, job.status, job.run_count, job.fence, ended, at_work


def short_label(batch: Batch, job: Job) -> str:
    """The settings of a member that vary in its batch; all of them if none does."""
    if batch.kind is BatchKind.BOOK and job.batch_index is not None:
        return f"Page {job.batch_index + 1}"
    axes = batch.metadata.get("axes")
    settings = settings_of(job, batch)
    varying = [axis["name"] for axis in axes if _varies(axis)] if isinstance(axes, list) else []
    labels = [f"{name} = {shown(settings[name])}" for name in varying if name in settings]
    return ", ".join(labels) or label_of(job, batch)


def _varies(axis: Any) -> bool:
    is_axis = isinstance(axis, dict) and isinstance(axis.get("name"), str) and isinstance(axis.get("values"), list)
    return is_axis and len(axis["values"]) > 1


async def stands(view: View, batch: Batch) -> str:
    """Such as `412 of 900 done, 3 need attention, about 41 min left on 2 servers.`"""
    left = batch.pending + batch.processing
    if batch.status.has_ended or batch.is_paused or not left:
        return f"{sentence(batch)}{took(batch, ' in ')}."
    live = await view.context.fleet.live()
    servers = {run.server for run in live if run.batch_id == batch.id}
    if not servers and not await view.context.fleet.agents():
        remedy = "run e3 burst again" if batch.kind is BatchKind.BURST else "start one with e3 run"
        return f"{sentence(batch)}. No agent works here: {remedy}."
    left_seconds = await view.context.forecasts.left(batch)
    text = sentence(batch, seconds_left=left_seconds)
    if left_seconds and servers:
        text += f" on {counted(len(servers), 'server')}"
    elif batch.processing:
        text += f", {batch.processing} rendering"
    return f"{text}."


def took(batch: Batch, words: str) -> str:
    """How long its current generation took, after some words. Empty while it goes on."""
    time = lasted(batch.reopened_at or batch.created_at, batch.completed_at) if batch.status.has_ended else ""
    return f"{words}{time}" if time else ""


async def about_batch(view: View, batch: Batch) -> Facts:
    """The prompt and the model that its first and its last member share."""
    ends = await view.context.store.run(ops.members_at, batch.id, [0, max(0, batch.total - 1)])
    found = (await view.context.cells.of(ends)).values()
    prompts, models = {each.prompt for each in found}, {each.model for each in found}
    return Facts(prompt=prompts.pop() if len(prompts) == 1 else "", model=models.pop() if len(models) == 1 else "")


async def at_the_front(store: Store, batch: Batch, most: int) -> list[Job]:
    """The members around the one that is rendered now: members run in order."""
    last = min(batch.total, batch.ended + batch.processing)
    return await store.run(ops.members_at, batch.id, range(max(0, last - most), last))


async def newest_results(store: Store, batch: Batch, most: int) -> list[Job]:
    """The newest members with a result, newest first."""
    jobs = [job for job in await at_the_front(store, batch, 2 * most) if job.status is JobStatus.DONE and job.outputs]
    return sorted(jobs, key=lambda job: (job.end_time or "", job.id), reverse=True)[:most]
