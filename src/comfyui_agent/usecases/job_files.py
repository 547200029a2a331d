"""Job files that are handed in by name: added now, or submitted again after they failed."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from comfyui_agent.clock import now
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.batches import BatchKind, NewBatch, mint_batch_id
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.job_files import FileVerdict, ReadFile
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import folder_of
from comfyui_agent.domain.needs import missing_for
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.folder_scan import Refused, Unsettled, is_job_file, read_whole, sign, trouble_with
from comfyui_agent.pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.actor import Actor
from comfyui_agent.usecases.intake import Intake
from comfyui_agent.usecases.jobs import STATES, JobAnswer, audit_answers

AT_ONCE = 250
PATIENCE = 2.0


@dataclass(frozen=True)
class AddedFiles:
    """What became of each file, and the batch that was made of them, if one was."""

    answers: tuple[JobAnswer, ...]
    batch_id: str = ""
    batch_jobs: int = 0
    missing: str = ""
    """What some of them need and no server has."""


async def add_files(
    store: Store, intake: Intake, actor: Actor, paths: Sequence[Path], batch_name: str = ""
) -> AddedFiles:
    """Queue the jobs of files, wherever they lie. With a name, those that were accepted become one batch."""
    async with intake.reading() as admission:
        answers = [await add_file(store, admission, intake.workspace, path) for path in paths]
    await audit_answers(store, actor, EventName.AUDIT_JOB_SUBMIT, answers, is_list=False)
    jobs = [answer.job for answer in answers if answer.job is not None and not answer.problem]
    accepted = [job.id for job in jobs]
    needs = await store.run(ops.find_needs, {job.needs for job in jobs if job.needs})
    missing = missing_for(needs, await intake.offers({name for each in needs for name in each.classes}))
    if not batch_name or not accepted:
        return AddedFiles(tuple(answers), missing=missing)
    batch = NewBatch(mint_batch_id(batch_name, "files"), batch_name, BatchKind.FILES)
    count = await store.run(ops.group_jobs, batch, accepted)
    return AddedFiles(tuple(answers), batch.id, count, missing)


async def retry_jobs(
    store: Store, intake: Intake, actor: Actor, jobs: Sequence[Job], *, is_list: bool = False
) -> list[JobAnswer]:
    """Submit failed jobs again, cancelled ones included. A job file that is still there is read anew."""
    actor.check_owners(jobs)
    async with actor.room(len(jobs)), intake.reading() as admission:
        answers = await resubmit(store, admission, intake.workspace, jobs)
    await audit_answers(store, actor, EventName.AUDIT_JOB_RETRY, answers, is_list=is_list)
    return answers


async def add_file(store: Store, admission: Admission, workspace: Workspace, path: Path) -> JobAnswer:
    """Queue the job of one file. A file from outside is copied to the folder of job files first."""
    path = path.absolute()
    signature = sign(str(path))
    if signature is None:
        message = f"{path} is a folder: name files in it" if path.is_dir() else f"there is no file {path}"
        return JobAnswer(path.name, None, message)
    trouble = trouble_with(path.name) or ("" if is_job_file(path.name) else "its name must end in .yaml or .yml")
    if trouble:
        return JobAnswer(path.name, None, trouble)
    folder, processing = path.parent.resolve(), workspace.processing.resolve()
    is_here = folder.is_relative_to(processing)
    if is_here:  # as the monitor calls it, whichever way it was named
        path = workspace.processing / folder.relative_to(processing) / path.name
    try:
        filed = await _read(admission, path)
    except Unsettled:
        return JobAnswer(path.name, None, f"{path}, or a picture that it names, is being written: try again")
    except OSError as error:
        return JobAnswer(path.name, None, f"it cannot be taken in now: {error}")
    if filed.problem and not is_here:
        return JobAnswer(path.name, None, filed.problem)
    known = await store.run(ops.find_job_by_name, path.name)
    is_settled = known is not None and known.status is JobStatus.DONE and not known.resubmit
    if known is not None and is_settled and known.digest == filed.job.digest:
        return JobAnswer(path.name, known)
    if not is_here:
        file_path = filed.job.file_path
        holder = await store.run(ops.holder_of_path, file_path, besides=path.name) if file_path else None
        if holder is not None:
            message = f"outputs.file_path: {file_path} belongs to {holder}: give this one another"
            return JobAnswer(path.name, known, message)
        target = workspace.processing / folder_of(filed.job.job_type) / path.name
        places = (workspace.job_file(target), filed.finished_as)
        other = known.job_file if known is not None and known.job_file not in places else None
        if other is not None and (workspace.root / other).exists():
            return JobAnswer(path.name, known, f"the name belongs to {other}: rename one of them")
        try:
            await INTAKE.run(_copy, path, target, signature)
        except FileExistsError:
            return JobAnswer(path.name, known, f"{target} is there already and says something else: rename one of them")
        except (OSError, Refused, Unsettled) as error:
            return JobAnswer(path.name, None, f"{path} could not be copied to {target.parent}: {error}")
        try:
            filed = await _read(admission, target)
        except (Unsettled, OSError) as error:
            return JobAnswer(path.name, None, f"{target} could not be read again: {error}")
    [outcome] = await store.run(ops.file_jobs, [replace(filed, insists=True)])
    was_refused = outcome.verdict in (FileVerdict.REJECTED, FileVerdict.ELSEWHERE)
    problem = outcome.reason if was_refused else filed.problem or outcome.reason
    name = filed.job.config_name
    return JobAnswer(name, await store.run(ops.find_job_by_name, name), problem)


async def resubmit(store: Store, admission: Admission, workspace: Workspace, jobs: Sequence[Job]) -> list[JobAnswer]:
    """Submit failed jobs again; `retry_jobs` without an actor."""
    answers: dict[str, JobAnswer] = {}
    without_file: list[Job] = []

    def refuse(job: Job, problem: str) -> None:
        answers[job.config_name] = JobAnswer(job.config_name, job, problem)

    for start in range(0, len(jobs), AT_ONCE):
        files: list[ReadFile] = []
        for job in jobs[start : start + AT_ONCE]:
            if job.status is not JobStatus.FAILED:
                refuse(job, f"it {STATES[job.status]}: nothing to retry")
                continue
            filed: ReadFile | None = None
            try:
                if job.job_file is not None:
                    filed = await _read(admission, workspace.root / job.job_file)
            except Unsettled:  # there is no such file
                pass
            except OSError as error:
                refuse(job, f"it cannot be taken in now: {error}")
                continue
            if filed is not None:
                files.append(replace(filed, insists=True))
            elif job.template_hash is None and job.job_file is not None:
                refuse(job, f"its file {job.job_file} is gone, and it never could be read: drop it again")
            else:
                without_file.append(job)
        for filed, outcome in zip(files, await store.run(ops.file_jobs, files), strict=True):
            name = filed.job.config_name
            answers[name] = JobAnswer(name, await store.run(ops.find_job_by_name, name), outcome.reason)
    retried = set(await store.run(ops.retry_jobs, [job.id for job in without_file], forget_files=True))
    for job in without_file:
        name, problem = job.config_name, "" if job.id in retried else "it is not failed any more"
        answers[name] = JobAnswer(name, await store.run(ops.find_job_by_name, name), problem)
    return [answers[job.config_name] for job in jobs]


async def _read(admission: Admission, path: Path) -> ReadFile:
    """The job of a file. One that is being written is waited for; Unsettled if that takes too long, or it is gone."""
    deadline = now() + PATIENCE
    while True:
        signature = sign(str(path))
        if signature is None:
            raise Unsettled
        try:
            return await INTAKE.run(admission.read, path, signature, is_retry=True)
        except Unsettled:
            if now() > deadline:
                raise
            await asyncio.sleep(0.1)


def _copy(path: Path, target: Path, signature: tuple[int, int, int, int]) -> None:
    """Copy a whole file, and have it on disk; FileExistsError if another one is there."""
    data = read_whole(str(path), signature)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".e3part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as copy:
            copy.write(data)
            copy.flush()
            os.fsync(copy.fileno())
        Path(temporary).chmod(0o644)
        try:
            os.link(temporary, target)
        except FileExistsError:
            if target.read_bytes() != data:
                raise
    finally:
        Path(temporary).unlink(missing_ok=True)
