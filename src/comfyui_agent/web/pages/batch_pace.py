"""The state of a batch in one sentence: counts, pace, time left and servers."""

from __future__ import annotations

import time

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.domain.batches import Batch, BatchKind
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.pace import ENOUGH
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.web.html import parsed
from comfyui_agent.web.screens import View

LOOKED_AT = 40
LEAST_PATIENCE = 60.0
PATIENCE = 5.0
"""A pause of this many renderings ends the time over which the pace is measured."""


async def stands(view: View, batch: Batch) -> str:
    """Such as `412 of 900 done, 3 need attention, about 41 min left on 2 servers.`"""
    left = batch.pending + batch.processing
    if batch.status.has_ended or batch.is_paused or not left:
        return f"{sentence(batch)}."
    live = await view.context.fleet.live()
    servers = {run.server for run in live if run.batch_id == batch.id}
    if not servers and not await view.context.fleet.agents():
        remedy = "run e3 burst again" if batch.kind is BatchKind.BURST else "start one with e3 run"
        return f"{sentence(batch)}. No agent works here: {remedy}."
    pace = await pace_of(view.context.store, batch)
    text = sentence(batch, pace)
    if pace and servers:
        text += f" on {counted(len(servers), 'server')}"
    elif not pace and batch.processing:
        text += f", {batch.processing} rendering"
    return f"{text}."


async def pace_of(store: Store, batch: Batch) -> float | None:
    """Results per second, from the members that ended last. None if there are too few.

    It changes only when a result arrives, so that the sentence does not change in between.
    """
    jobs = [job for job in await at_the_front(store, batch, LOOKED_AT) if job.status is JobStatus.DONE]
    patience = max([LEAST_PATIENCE, *(PATIENCE * (job.duration or 0.0) for job in jobs)])
    moments = sorted((ended.timestamp() for job in jobs if (ended := parsed(job.end_time))), reverse=True)
    lately: list[float] = []
    before = time.time()
    for moment in moments:
        if before - moment > patience:
            break
        lately.append(moment)
        before = moment
    if len(lately) < ENOUGH:
        return None
    return (len(lately) - 1) / max(0.001, lately[0] - lately[-1])


async def at_the_front(store: Store, batch: Batch, most: int) -> list[Job]:
    """The members around the one that is rendered now: members run in order."""
    last = min(batch.total, batch.ended + batch.processing)
    return await store.run(ops.members_at, batch.id, range(max(0, last - most), last))


async def newest_results(store: Store, batch: Batch, most: int) -> list[Job]:
    """The newest members with a result, newest first."""
    jobs = [job for job in await at_the_front(store, batch, 2 * most) if job.status is JobStatus.DONE and job.outputs]
    return sorted(jobs, key=lambda job: (job.end_time or "", job.id), reverse=True)[:most]
