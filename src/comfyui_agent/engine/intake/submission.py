"""Job files that a person hands in by name, now: added, or submitted again after they failed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from comfyui_agent.clock import now
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.job_files import FileVerdict, ReadFile
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.kinds import folder_of
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.intake.admission import Admission
from comfyui_agent.engine.intake.folder_scan import Refused, Unsettled, is_job_file, read_whole, sign, trouble_with
from comfyui_agent.engine.thread_pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store

AT_ONCE = 250
REMOVED = ".removed"
PATIENCE = 2.0
DONE = "a job of this name is done already: give the file another name"
WORDS = {
    JobStatus.PENDING: "waits already",
    JobStatus.PROCESSING: "is rendering",
    JobStatus.DONE: "is done already",
    JobStatus.FAILED: "has ended already",
}


@dataclass(frozen=True)
class Answer:
    """What became of one request: the job, or why there is none."""

    name: str
    job: Job | None
    problem: str = ""


async def add_file(store: Store, admission: Admission, workspace: Workspace, path: Path) -> Answer:
    """Queue the job of a file, wherever it lies. One from outside is copied to the folder of job files first."""
    path = path.absolute()
    signature = sign(str(path))
    if signature is None:
        words = f"{path} is a folder: name files in it" if path.is_dir() else f"there is no file {path}"
        return Answer(path.name, None, words)
    trouble = trouble_with(path.name) or ("" if is_job_file(path.name) else "its name must end in .yaml or .yml")
    if trouble:
        return Answer(path.name, None, trouble)
    folder, processing = path.parent.resolve(), workspace.processing.resolve()
    is_here = folder.is_relative_to(processing)
    if is_here:  # as the monitor calls it, whichever way it was named
        path = workspace.processing / folder.relative_to(processing) / path.name
    try:
        filed = await _read(admission, path)
    except Unsettled:
        return Answer(path.name, None, f"{path}, or a picture that it names, is being written: try again")
    except OSError as error:
        return Answer(path.name, None, f"its pictures cannot be kept: {error}")
    if filed.problem and not is_here:
        return Answer(path.name, None, filed.problem)
    known = await store.run(ops.find_job_by_name, path.name)
    if known is not None and known.status is JobStatus.DONE and not known.resubmit:
        is_same = known.digest == filed.job.digest
        return Answer(path.name, known, "" if is_same else DONE)
    if not is_here:
        file_path = filed.job.file_path
        holder = await store.run(ops.holder_of_path, file_path, besides=path.name) if file_path else None
        if holder is not None:
            words = f"outputs.file_path: {file_path} belongs to {holder}: give this one another"
            return Answer(path.name, known, words)
        target = workspace.processing / folder_of(filed.job.job_type) / path.name
        other = known.source if known is not None and known.source != workspace.job_file(target) else None
        if other is not None and (workspace.root / other).exists():
            return Answer(path.name, known, f"the name belongs to {other}: rename one of them")
        try:
            await INTAKE.run(_copy, path, target, signature)
        except FileExistsError:
            return Answer(path.name, known, f"{target} is there already and says something else: rename one of them")
        except (OSError, Refused, Unsettled) as error:
            return Answer(path.name, None, f"{path} could not be copied to {target.parent}: {error}")
        try:
            filed = await _read(admission, target)
        except (Unsettled, OSError) as error:
            return Answer(path.name, None, f"{target} could not be read again: {error}")
    return await _file(store, filed)


async def retry(store: Store, admission: Admission, workspace: Workspace, jobs: Sequence[Job]) -> list[Answer]:
    """Submit failed jobs again. Where the file is still there it is read anew, with the workflow as it is now."""
    answers: dict[str, Answer] = {}
    without_file: list[Job] = []
    for start in range(0, len(jobs), AT_ONCE):
        files: list[ReadFile] = []
        for job in jobs[start : start + AT_ONCE]:
            if job.status is not JobStatus.FAILED:
                answers[job.config_name] = Answer(job.config_name, job, f"it {WORDS[job.status]}: nothing to retry")
                continue
            try:
                filed = await _refile(admission, workspace, job)
            except OSError as error:
                answers[job.config_name] = Answer(job.config_name, job, f"its pictures cannot be kept: {error}")
                continue
            if filed is not None:
                files.append(replace(filed, insists=True))
            elif job.template_hash is None and job.source is not None:
                words = f"its file {job.source} is gone, and it never could be read: drop it again"
                answers[job.config_name] = Answer(job.config_name, job, words)
            else:
                without_file.append(job)
        for filed, ruling in zip(files, await store.run(ops.file_jobs, files), strict=True):
            name = filed.job.config_name
            answers[name] = Answer(name, await store.run(ops.find_job_by_name, name), ruling.reason)
    retried = set(await store.run(ops.retry_jobs, [job.id for job in without_file], forget_files=True))
    for job in without_file:
        problem = "" if job.id in retried else "it is not failed any more"
        answers[job.config_name] = Answer(
            job.config_name, await store.run(ops.find_job_by_name, job.config_name), problem
        )
    return [answers[job.config_name] for job in jobs]


async def remove(store: Store, workspace: Workspace, jobs: Sequence[Job]) -> list[Answer]:
    """Remove ended jobs and their runs from the memory. Results stay on disk.

    A job file that is still in the folder of job files is renamed `NAME.yaml.removed`: it would be taken in again.
    """
    removed = set(await store.run(ops.remove_jobs, [job.id for job in jobs]))
    for job in jobs:
        path = workspace.root / job.source if job.id in removed and job.source is not None else None
        if path is not None and path.is_relative_to(workspace.processing):
            with contextlib.suppress(FileNotFoundError):
                await INTAKE.run(path.replace, path.with_name(f"{path.name}{REMOVED}"))
    return [
        Answer(job.config_name, job, "" if job.id in removed else f"it {WORDS[job.status]}: cancel it first")
        for job in jobs
    ]


async def _refile(admission: Admission, workspace: Workspace, job: Job) -> ReadFile | None:
    """What the file of a job says now; None if there is no such file."""
    if job.source is None:
        return None
    path = workspace.root / job.source
    try:
        return None if sign(str(path)) is None else await _read(admission, path)
    except Unsettled:
        return None


async def _read(admission: Admission, path: Path) -> ReadFile:
    """The job of a file. Waits a moment while the file or its pictures are being written; Unsettled if that goes on."""
    deadline = now() + PATIENCE
    while True:
        signature = sign(str(path))
        try:
            if signature is None:
                raise Unsettled
            return await INTAKE.run(admission.read, path, signature, is_retry=True)
        except Unsettled:
            if now() > deadline:
                raise
            await asyncio.sleep(0.1)


async def _file(store: Store, filed: ReadFile) -> Answer:
    name = filed.job.config_name
    [ruling] = await store.run(ops.file_jobs, [replace(filed, insists=True)])
    job = await store.run(ops.find_job_by_name, name)
    if ruling.verdict in (FileVerdict.REJECTED, FileVerdict.ELSEWHERE):
        return Answer(name, job, ruling.reason)
    return Answer(name, job, filed.problem or ruling.reason)


def _copy(path: Path, target: Path, signature: tuple[int, int, int, int]) -> None:
    """A whole copy under its name, on disk; FileExistsError if another is there."""
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
