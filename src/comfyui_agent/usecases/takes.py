"""Takes: the results of a job that was rendered again, and which of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import NotFound, NotPossible


@dataclass(frozen=True)
class JobTake:
    """One result of a job. `counts`: it is the one that the job, its page or its cell shows."""

    number: int
    counts: bool
    outputs: tuple[str, ...]
    end_time: str | None
    duration: float | None
    server: str | None


async def takes_of(store: Store, job: Job) -> Sequence[JobTake]:
    """All results of a job, oldest first. A take that waits, renders or has failed is none yet."""
    others = await store.run(ops.list_takes, job.id)
    found = [JobTake(each.number, False, each.outputs, each.end_time, each.duration, each.server) for each in others]
    if job.status is JobStatus.DONE:
        found.append(JobTake(job.take or 1, True, job.outputs, job.end_time, job.duration, job.server))
    return sorted(found, key=lambda take: take.number)


async def choose_take(store: Store, actor: Actor, job: Job, number: int) -> Job:
    """Let another result of an ended job count. The grid of its batch is drawn anew."""
    actor.check_owner(job)
    takes = await takes_of(store, job)
    if number not in {take.number for take in takes}:
        listed = ", ".join(str(take.number) for take in takes) or "none yet"
        raise NotFound(f"{job.config_name} has no take {number}; there are {listed}", "Choose one of them.")
    if job.status not in (JobStatus.DONE, JobStatus.FAILED):
        raise NotPossible(f"{job.config_name} makes another take now", "Wait until it has ended, or cancel it.")
    if number != (job.take or 1) or job.status is JobStatus.FAILED:
        if not await store.run(ops.choose_take, job.id, number):
            raise NotPossible(f"{job.config_name} was changed at the same moment", "Look again.")
        await actor.audit(store, EventName.AUDIT_JOB_TAKE, job_id=job.id, message=f"take {number}")
    return await store.run(ops.find_job_by_id, job.id) or job
