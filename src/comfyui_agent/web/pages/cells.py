"""What several pages need to show a job or a batch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from comfyui_agent.batches.members import label_of, settings_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import BadCursor, JobFilter, JobPage
from comfyui_agent.web.screens import NoScreen, View

LONGEST_VALUE = 600


async def batch_here(view: View, kind: BatchKind | None = None) -> Batch:
    """The batch in the path. NoScreen if there is none of that kind."""
    name = view.names["book_id" if kind is BatchKind.BOOK else "batch_id"]
    batch = await view.context.store.run(ops.find_batch, name)
    if batch is None or (kind is not None and batch.kind is not kind):
        what, where = ("book", "/books") if kind is BatchKind.BOOK else ("batch", "/batches")
        raise NoScreen(f"there is no {what} {name!r}: see {where}")
    return batch


async def jobs_here(view: View, wanted: JobFilter, most: int, start: str) -> JobPage:
    """A page of jobs at the cursor in the query. `start` says where the list begins, if the cursor is bad."""
    try:
        return await view.context.store.run(ops.job_page, wanted, view.asked("cursor") or None, most)
    except BadCursor:
        raise NoScreen(f"this part of the list is not there any more: begin at {start}") from None


async def maker(view: View, made: Job | Batch) -> str:
    """The name of the token that made something. Empty if none did."""
    if made.created_by is None:
        return ""
    return await view.context.store.run(ops.token_name, made.created_by) or f"token {made.created_by}"


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


def shown(value: Any) -> str:
    """A value as people write it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
