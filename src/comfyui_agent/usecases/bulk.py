"""Many jobs in one transaction: each is accepted or refused alone, and a repeated request makes nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.config.validation import Complaints
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.input_files import NotKept
from comfyui_agent.store import operations as ops
from comfyui_agent.store.records import Holder
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.errors import ExternalIdTaken, Invalid, NameTaken, NotPossible, UseCaseError
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.jobs import digest_of_request


@dataclass(frozen=True)
class Wanted:
    """One job that is asked for: the keys of a job file, its name, and the caller's own key."""

    tree: Mapping[str, Any]
    name: str
    external_id: str | None


@dataclass(frozen=True)
class Accepted:
    """A job that is in the database. `is_new`: this request has put it there."""

    id: int
    name: str
    is_new: bool


async def submit_jobs(
    store: Store, intake: Intake, actor: Actor, wanted: Sequence[Wanted]
) -> list[Accepted | UseCaseError]:
    """Queue jobs, all that can be in one transaction. What a job with the same keys is there for counts as accepted."""
    keys = [each.external_id for each in wanted if each.external_id]
    holders = await store.run(ops.find_external_ids, actor.token_id, keys)
    async with intake.reading() as admission:
        found = await intake.threads.run(
            lambda: [_checked(admission, actor, each, holders.get(each.external_id or "")) for each in wanted]
        )
    for index, job in enumerate(found):
        if isinstance(job, NewJob) and job.file_path is not None:
            holder = await store.run(ops.holder_of_path, job.file_path)
            if holder is not None:
                message = f"outputs.file_path: {job.file_path} belongs to {holder}"
                found[index] = Invalid.of_key("outputs.file_path", message, "Give this one another.")
    new = [job for job in found if isinstance(job, NewJob)]
    if not new:
        return [each for each in found if not isinstance(each, NewJob)]
    async with actor.room(len(new)):
        ids = await store.run(ops.submit_jobs, new)
    given = dict(zip(map(id, new), ids, strict=True))
    made = sum(job_id is not None for job_id in ids)
    if made:
        await actor.audit(store, EventName.AUDIT_JOB_SUBMIT, message=counted(made, "job"))
    if made < len(new):
        holders = await store.run(ops.find_external_ids, actor.token_id, keys, with_filling=True)
    answers: list[Accepted | UseCaseError] = []
    for job in found:
        if not isinstance(job, NewJob):
            answers.append(job)
        elif (job_id := given[id(job)]) is not None:
            answers.append(Accepted(job_id, job.config_name, True))
        else:
            answers.append(await _there_already(store, job, holders.get(job.external_id or "")))
    return answers


def _checked(
    admission: Admission, actor: Actor, wanted: Wanted, holder: Holder | None
) -> NewJob | Accepted | UseCaseError:
    if holder is not None:
        return _held(wanted.external_id or "", digest_of_request(wanted.tree), holder)
    try:
        actor.check_priority(wanted.tree.get("priority"))
        job = admission.job_of(wanted.tree, wanted.name)
    except UseCaseError as error:
        return error
    except Complaints as error:
        return Invalid.of(error)
    except NotKept as error:
        return NotPossible(str(error))
    return replace(job, created_by=actor.token_id, external_id=wanted.external_id)


def _held(external_id: str, digest: str | None, holder: Holder) -> Accepted | UseCaseError:
    if (holder.kind, holder.digest) == ("job", digest):
        return Accepted(int(holder.id), holder.name, False)
    return ExternalIdTaken(external_id, holder)


async def _there_already(store: Store, job: NewJob, holder: Holder | None) -> Accepted | UseCaseError:
    """Why a job was left out: its key or its name is taken, by the same job or by another."""
    if holder is not None:
        return _held(job.external_id or "", job.digest, holder)
    known = await store.run(ops.find_job_by_name, job.config_name)
    keys = (job.digest, job.created_by, job.external_id)
    if known is not None and (known.digest, known.created_by, known.external_id) == keys:
        return Accepted(known.id, known.config_name, False)
    message = f"there is a job {job.config_name} already"
    return NameTaken(message, "Give this one another name, or leave it out.")
