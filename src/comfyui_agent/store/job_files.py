"""Job files: new, changed, bad and deleted ones. Each submission is taken in once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from comfyui_agent.domain.batches import is_grid_name
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.job_files import Disposition, FileVerdict, KnownJob, ReadFile, is_elsewhere, judge
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text, whole
from comfyui_agent.store.event_log import add_event, note_ending
from comfyui_agent.store.grids import holder_of
from comfyui_agent.store.job_commands import facts_of, keep_workflows
from comfyui_agent.store.operation import Operation, column, command, query, statement, transition
from comfyui_agent.store.outcomes import LONGEST_TRACE
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import record, text

SUBMITTED = (FileVerdict.ACCEPTED, FileVerdict.UPDATED, FileVerdict.RESUBMITTED)


@command
def file_jobs(session: Session, files: Sequence[ReadFile]) -> list[Disposition]:
    """Take in files, all or none. Returns what became of each, in their order. No name may occur twice."""
    names = [filed.job.config_name for filed in files]
    known = {row["config_name"]: record(KnownJob, row) for row in session.rows("known_jobs", names=names)}
    owners = _owners(session, {filed.job.file_path for filed in files if filed.job.file_path})
    dispositions: list[Disposition] = []
    new: list[ReadFile] = []
    for filed in files:
        row = known.get(filed.job.config_name)
        verdict = judge(row, filed)
        if verdict in SUBMITTED and not filed.problem and filed.job.file_path is not None:
            owner = _owner_besides(filed, owners)
            if owner is not None and owner.source is not None and not filed.insists:
                dispositions.append(Disposition(FileVerdict.TAKEN, _taken_message(filed, owner.holder), owner.source))
                continue
            if owner is not None:
                filed = replace(filed, problem=_taken_message(filed, owner.holder))
                verdict = judge(row, filed)
        if verdict is FileVerdict.ACCEPTED:
            new.append(filed)
        elif row is not None:
            _change(session, row, verdict, filed)
        dispositions.append(Disposition(verdict, _reason(verdict, filed, row), row.source if row else None))
    keep_workflows(session, (filed.job for filed in new))
    rows = session.rows("insert_jobs", jobs=[_facts(filed) for filed in new])
    ids = {row["config_name"]: JobId(row["id"]) for row in rows}
    _note(session, [(ids[filed.job.config_name], filed) for filed in new])
    return dispositions


def _reason(verdict: FileVerdict, filed: ReadFile, row: KnownJob | None) -> str:
    if verdict is FileVerdict.REJECTED:
        if row is not None and is_elsewhere(row, filed):
            return f"the name belongs to {row.source}, which is done already: give the file another name"
        return filed.problem
    if verdict is FileVerdict.ELSEWHERE and row is not None:
        return f"the name belongs to {row.source}: give the file another name"
    return filed.problem


@dataclass(frozen=True)
class _Owner:
    """The job or the grid that owns a path. `source` is the job file, while the job is pending."""

    holder: str
    name: str | None = None
    source: str | None = None


def _owners(session: Session, paths: Collection[str]) -> dict[str, list[_Owner]]:
    """The owners of paths that belong to jobs or grids, or are kept for one."""
    found: dict[str, list[_Owner]] = {}
    for row in session.rows("owners_of_paths", paths=sorted(paths)) if paths else ():
        source = text(row["source"]) if row["status"] == JobStatus.PENDING.value else None
        found.setdefault(row["path"], []).append(_Owner(holder_of(row), text(row["config_name"]), source))
    folders = {path: PurePosixPath(path).parent.name for path in paths if is_grid_name(PurePosixPath(path).name)}
    rows = session.rows("batches_named", ids=sorted(set(folders.values()))) if folders else ()
    batches = {row["id"] for row in rows}
    for path, folder in folders.items():
        if folder in batches:
            found.setdefault(path, []).append(_Owner(f"the grid of {folder}"))
    return found


def _owner_besides(filed: ReadFile, owners: dict[str, list[_Owner]]) -> _Owner | None:
    """Another job or grid that owns the path of a result. If there is none, this job owns it from now on."""
    path, name = filed.job.file_path or "", filed.job.config_name
    for owner in owners.get(path, ()):
        if owner.name != name:
            return owner
    owners.setdefault(path, []).append(_Owner(f"the job {name}", name))
    return None


def _taken_message(filed: ReadFile, holder: str) -> str:
    where = f"{filed.file_path_at}: " if filed.file_path_at else ""
    return f"{where}outputs.file_path: {filed.job.file_path} belongs to {holder}: give this one another"


@query
def holder_of_path(session: Session, path: str, *, besides: str = "") -> str | None:
    """The job or grid that owns a path, unless it is the job `besides`."""
    others = [owner for owner in _owners(session, [path]).get(path, ()) if owner.name != besides]
    return others[0].holder if others else None


def _change(session: Session, row: KnownJob, verdict: FileVerdict, filed: ReadFile) -> None:
    match verdict:
        case FileVerdict.UPDATED | FileVerdict.RESUBMITTED:
            keep_workflows(session, [filed.job])
            _note(session, [(row.id, filed)])
            session.run("renew_job", id=row.id, job=json_text(_facts(filed)))
            session.run("withdraw_attempts", job_id=row.id)
        case FileVerdict.LATER:
            note_file_changed(session, row.id)
        case FileVerdict.UNCHANGED:
            if row.resubmit or row.source != filed.job.source:
                session.run("locate_job", id=row.id, source=filed.job.source, digest=filed.job.digest)
        case _:
            pass


@transition
def note_file_changed(session: Session, job_id: JobId) -> None:
    """Note that the file of a job was changed while the job ran."""
    if session.run("note_change", id=job_id):
        words = "its file was changed while it ran: it is submitted again at the end"
        add_event(session, Event(EventName.ALERT_FILE, job_id=job_id, message=words))


def _facts(filed: ReadFile) -> dict[str, Any]:
    trace = whole(Failure(FailureClass.INVALID, filed.problem).trace(), LONGEST_TRACE) if filed.problem else None
    return facts_of(filed.job) | {"error_trace": trace}


def _note(session: Session, submitted: Sequence[tuple[JobId, ReadFile]]) -> None:
    session.run("note_submitted", ids=[job_id for job_id, filed in submitted if not filed.problem])
    for job_id, filed in submitted:
        if filed.problem:
            kind = FailureClass.INVALID.value
            add_event(session, Event(EventName.JOB_FAILED, job_id=job_id, failure_class=kind, message=filed.problem))


@command
def cancel_deleted(session: Session, sources: Sequence[str]) -> list[str]:
    """Cancel pending jobs whose files are gone. Returns their names. The file may come back as a new job."""
    session.run("forget_changes", names=[source.rpartition("/")[2] for source in sources], sources=sources)
    kind, words = FailureClass.CANCELLED.value, "its file was deleted"
    for row in session.rows("jobs_of_sources", sources=sources):
        note_ending(session, Event(EventName.JOB_CANCELLED, job_id=row["id"], failure_class=kind, message=words))
    return [row["config_name"] for row in session.rows("cancel_deleted", sources=sources)]


@query
def finished_files(session: Session, seconds: tuple[float, float]) -> list[tuple[str, str | None, str]]:
    """Source, digest and type of jobs that were done within a range of seconds ago."""
    shortest, longest = seconds
    rows = session.rows("finished_files", shortest=shortest, longest=longest)
    return [(row["source"], text(row["digest"]), text(row["job_type"]) or "") for row in rows]


@query
def file_of_job(session: Session, job_id: JobId) -> tuple[str | None, str | None]:
    """The path of the file of a job, and the digest of the bytes that the job stands for."""
    row = session.one("file_of_job", id=job_id)
    return (None, None) if row is None else (text(row["source"]), text(row["digest"]))


note_file_moved: Operation[[str, str, str], int] = statement("note_file_moved", "name", "source", "target")
pending_sources: Operation[[], list[str]] = column(list, "pending_sources")


@transition
def reject_file(session: Session, path: str, reason: str, kept: str | None = None) -> None:
    """Note why a file was renamed. `kept`: the new name of one that was rejected under this path before."""
    if kept is not None:
        session.run("keep_rejection", path=path, kept=kept)
    session.run("reject_file", path=path, reason=reason)
    add_event(session, Event(EventName.ALERT_FILE, message=f"{path}: {reason}"))


@transition
def note_file_repeated(session: Session, name: str) -> None:
    """Note that the file of a done job has come again."""
    row = session.one("job_by_name", name=name)
    words = "its file came again with the same bytes: it is done already, so the file is put away"
    add_event(session, Event(EventName.JOB_FILE_REPEATED, job_id=row["id"] if row else None, message=words))


@query
def rejections(session: Session) -> dict[str, str]:
    return {row["path"]: row["reason"] for row in session.rows("rejections")}
