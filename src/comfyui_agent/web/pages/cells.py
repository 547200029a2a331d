"""One job on a screen among others: what is at work of it, and when it looks different."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any
from urllib.parse import quote, urlencode

from comfyui_agent.batches.members import label_of, settings_of
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.engine.live_files import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.web.screens import NoScreen, View

LONGEST_VALUE = 600


async def batch_here(view: View, kind: BatchKind | None = None) -> Batch:
    """The batch that the address names; NoScreen if there is none of that kind."""
    name = view.names["book_id" if kind is BatchKind.BOOK else "batch_id"]
    batch = await view.context.store.run(ops.find_batch, name)
    if batch is None or (kind is not None and batch.kind is not kind):
        what, where = ("book", "/books") if kind is BatchKind.BOOK else ("batch", "/batches")
        raise NoScreen(f"there is no {what} {name!r}: see {where}")
    return batch


async def maker(view: View, found: Job | Batch) -> str:
    """What the token is called that made something; empty where none did."""
    if found.created_by is None:
        return ""
    return await view.context.store.run(ops.token_name, found.created_by) or f"token {found.created_by}"


async def live_by_job(view: View) -> dict[int, LiveRun]:
    return {run.job_id: run for run in await view.context.fleet.live()}


def looks(job: Job | None, live: LiveRun | None) -> Hashable:
    """Another value whenever the frame of a job looks different."""
    if job is None:
        return None
    at_work = (live.stage, live.step, live.steps, live.preview) if live else None
    ended = (job.outputs, job.failure_class, job.error_trace, job.duration, job.dismissed_at)
    return job.id, job.status, job.run_count, job.fence, ended, at_work


def short_label(batch: Batch, job: Job) -> str:
    """What tells it from the others of its batch: the settings that vary; all of them where none does."""
    if batch.kind is BatchKind.BOOK and job.batch_index is not None:
        return f"Page {job.batch_index + 1}"
    axes = batch.metadata.get("axes")
    settings = settings_of(job, batch)
    varying = [axis["name"] for axis in axes if _varies(axis)] if isinstance(axes, list) else []
    words = [f"{name} = {shown(settings[name])}" for name in varying if name in settings]
    return ", ".join(words) or label_of(job, batch)


def _varies(axis: Any) -> bool:
    is_axis = isinstance(axis, dict) and isinstance(axis.get("name"), str) and isinstance(axis.get("values"), list)
    return is_axis and len(axis["values"]) > 1


def shown(value: Any) -> str:
    """A value as people write it."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def link(view: View, **changes: str | int | None) -> str:
    """The address of this screen with some of its query changed; None takes one away."""
    kept = {key: value for key, value in view.query if key not in changes}
    kept |= {key: str(value) for key, value in changes.items() if value is not None}
    query = urlencode(kept, safe=",")
    return quote(view.path) + (f"?{query}" if query else "")


def number_asked(view: View, name: str, default: int, most: int) -> int:
    """A whole number in the query between 0 and `most`; the default where it says something else."""
    said = view.asked(name)
    if not said.isascii() or not said.isdigit() or len(said) > 9:
        return default
    return min(int(said), most)
