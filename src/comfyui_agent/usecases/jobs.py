"""What can be asked about single jobs: submit, retry, cancel, dismiss, rate, remove, set the priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import Job, NewJob
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted_jobs, json_text
from comfyui_agent.engine.intake.folder_scan import digest_of
from comfyui_agent.engine.retention import put_aside
from comfyui_agent.pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import Invalid, NameTaken, NotPossible
from comfyui_agent.usecases.intake import Intake

STATES = {
    JobStatus.PENDING: "waits already",
    JobStatus.PROCESSING: "is rendering",
    JobStatus.DONE: "is done already",
    JobStatus.FAILED: "has ended already",
}


@dataclass(frozen=True)
class JobAnswer:
    """What became of one job of a request; `problem` says why nothing was done."""

    name: str
    job: Job | None
    problem: str = ""


def digest_of_request(tree: Mapping[str, Any]) -> str:
    """The digest that a job gets which was submitted with these keys."""
    return digest_of(json_text(dict(tree), sort=True).encode("utf-8"))


async def submit_job(
    store: Store, intake: Intake, actor: Actor, tree: Mapping[str, Any], name: str, *, external_id: str | None = None
) -> Job:
    """Queue one job from the keys of a job file."""
    priority = tree.get("priority")
    actor.check_priority(priority if isinstance(priority, int) else None)
    async with intake.reading() as admission:
        new = await intake.threads.run(admission.job_of, tree, name)
    holder = await store.run(ops.holder_of_path, new.file_path) if new.file_path else None
    if holder is not None:
        message = f"outputs.file_path: {new.file_path} belongs to {holder}"
        raise Invalid.of_key("outputs.file_path", message, "Give this one another.")
    return await queue_job(store, actor, replace(new, external_id=external_id))


async def queue_job(store: Store, actor: Actor, new: NewJob) -> Job:
    """Queue one job that was checked. NameTaken or ExternalIdTaken if that is taken."""
    await actor.check_external_id(store, new.external_id)
    async with actor.room(1):
        [job_id] = await store.run(ops.submit_jobs, [replace(new, created_by=actor.token_id)])
    job = await store.run(ops.find_job_by_name, new.config_name)
    if job_id is None or job is None:
        await actor.check_external_id(store, new.external_id)
        message = f"there is a job {new.config_name} already"
        raise NameTaken(message, "Give this one another name, or leave it out.")
    await actor.audit(store, EventName.AUDIT_JOB_SUBMIT, job_id=job.id)
    return job


async def cancel_jobs(store: Store, actor: Actor, jobs: Sequence[Job], *, is_list: bool = False) -> list[JobAnswer]:
    """End jobs that wait or render. Agents take their prompts back."""
    actor.check_owners(jobs)
    cancelled = set(await store.run(ops.cancel_jobs, [job.id for job in jobs]))
    answers = []
    for job in jobs:
        problem = ""
        if job.id not in cancelled:
            now = await store.run(ops.find_job_by_id, job.id) or job
            problem = f"it {STATES[now.status]}"
        answers.append(JobAnswer(job.config_name, job, problem))
    await audit_answers(store, actor, EventName.AUDIT_JOB_CANCEL, answers, is_list=is_list)
    return answers


async def dismiss_jobs(store: Store, actor: Actor, jobs: Sequence[Job], *, is_list: bool = False) -> list[JobAnswer]:
    """Put failed jobs out of what needs attention. They stay in the history."""
    actor.check_owners(jobs)
    await store.run(ops.dismiss_jobs, [job.id for job in jobs])
    answers = []
    for job in jobs:
        is_failed = job.status is JobStatus.FAILED
        problem = "" if is_failed else f"it {STATES[job.status]}: only failed jobs can be dismissed"
        answers.append(JobAnswer(job.config_name, job, problem))
    await audit_answers(store, actor, EventName.AUDIT_JOB_DISMISS, answers, is_list=is_list)
    return answers


async def rate_jobs(
    store: Store, actor: Actor, jobs: Sequence[Job], rating: int | None, *, is_list: bool = False
) -> list[JobAnswer]:
    """Give results a star, reject them, or take that back."""
    actor.check_owners(jobs)
    await store.run(ops.rate_jobs, [job.id for job in jobs], rating)
    answers = []
    for job in jobs:
        is_done = job.status is JobStatus.DONE
        problem = "" if is_done else f"it {STATES[job.status]}: only results can be rated"
        answers.append(JobAnswer(job.config_name, job, problem))
    await audit_answers(store, actor, EventName.AUDIT_JOB_RATE, answers, is_list=is_list)
    return answers


async def remove_jobs(
    store: Store, workspace: Workspace, actor: Actor, jobs: Sequence[Job], *, is_list: bool = False
) -> list[JobAnswer]:
    """Remove ended jobs and their runs from the database. Results stay on disk.

    A job file that is still in the folder of job files is renamed `NAME.yaml.removed`: it would be taken in again.
    """
    actor.check_owners(jobs)
    removed = set(await store.run(ops.remove_jobs, [job.id for job in jobs]))
    for job in jobs:
        if job.id in removed and job.job_file is not None:
            await INTAKE.run(put_aside, workspace, job.job_file)
    names = [job.config_name for job in jobs if job.id in removed]
    if names:
        message = counted_jobs(names) if is_list else names[0]  # a row of the trail cannot refer to what is gone
        await actor.audit(store, EventName.AUDIT_JOB_DELETE, message=message)
    return [
        JobAnswer(job.config_name, job, "" if job.id in removed else f"it {STATES[job.status]}: cancel it first")
        for job in jobs
    ]


async def set_priority(store: Store, actor: Actor, job: Job, priority: int) -> Job:
    """Let a job run earlier or later; the job as it is then."""
    actor.check_owner(job)
    actor.check_priority(priority)
    if job.status is JobStatus.DONE:
        message = f"{job.config_name} is done already: its priority changes nothing"
        raise NotPossible(message, "Choose one that waits.")
    await store.run(ops.set_priority, job.id, priority)
    message = f"from {job.priority} to {priority}"
    await actor.audit(store, EventName.AUDIT_JOB_PRIORITY, job_id=job.id, message=message)
    return await store.run(ops.find_job_by_id, job.id) or job


async def audit_answers(
    store: Store, actor: Actor, event: EventName, answers: Sequence[JobAnswer], *, is_list: bool
) -> None:
    """Write one row for what was done. A list of jobs is named in its message, even a list of one."""
    done = [answer for answer in answers if not answer.problem]
    if len(done) == 1 and done[0].job is not None and not is_list:
        await actor.audit(store, event, job_id=done[0].job.id)
    elif done:
        await actor.audit(store, event, message=counted_jobs([answer.name for answer in done]))
