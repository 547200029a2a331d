"""What people and doors ask for: submit, cancel, retry, bump."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId, NewJob, Template
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.event_log import note_ending
from comfyui_agent.store.operation import command
from comfyui_agent.store.port import Session


@command
def submit_jobs(session: Session, jobs: Sequence[NewJob], *, are_told: bool = True) -> list[JobId | None]:
    """Accept jobs, all or none; None in the place of one whose name is taken. Events tell of them, unless later."""
    for template in {job.template.hash: job.template for job in jobs if job.template is not None}.values():
        keep_template(session, template)
    facts = [[*facts_of(job), None, 1 if job.reserved else None, job.created_by] for job in jobs]
    rows = session.rows("insert_jobs", jobs=json_text(facts))
    ids = {row["config_name"]: JobId(row["id"]) for row in rows}
    if are_told:
        session.run("note_submitted", ids=json.dumps(sorted(ids.values())))
    return [ids.pop(job.config_name, None) for job in jobs]


def facts_of(job: NewJob) -> list[Any]:
    """In the order of the columns of `insert_jobs`, up to what may be wrong with it."""
    return [
        job.config_name,
        job.job_type,
        job.workflow_id,
        job.priority,
        job.retry_limit,
        None if job.metadata is None else json_text(job.metadata),
        job.template.hash if job.template else None,
        json_text(job.inputs) if job.inputs else None,
        job.file_path,
        job.output_node,
        job.timeout_seconds,
        job.batch_id,
        job.batch_index,
        job.source,
        job.digest,
        json_text(job.pictures) if job.pictures else None,
    ]


def keep_template(session: Session, template: Template) -> None:
    session.run("keep_template", hash=template.hash, graph=template.text)


@command
def cancel_jobs(session: Session, jobs: Sequence[JobId]) -> list[JobId]:
    """End jobs that have not ended; those that were. A prompt at a server is taken back soon after."""
    return [job_id for job_id in jobs if _cancel_one(session, job_id)]


def _cancel_one(session: Session, job_id: JobId) -> bool:
    kind = FailureClass.CANCELLED.value
    note_ending(session, Event(EventName.JOB_CANCELLED, job_id=job_id, failure_class=kind))
    return session.run("cancel_job", id=job_id, error_trace="cancelled: by request") > 0


@command
def retry_jobs(session: Session, jobs: Sequence[JobId], *, forget_files: bool = False) -> list[JobId]:
    """Give failed jobs a fresh start, cancelled ones included; those that had failed."""
    retried = [job_id for job_id in jobs if session.run("retry_job", id=job_id)]
    if forget_files:  # or they would be cancelled because their files are gone
        for job_id in retried:
            session.run("forget_file", id=job_id)
    return retried


@command
def dismiss_jobs(session: Session, jobs: Sequence[JobId]) -> int:
    return session.run("dismiss_jobs", ids=json_text(list(jobs)))


@command
def remove_jobs(session: Session, jobs: Sequence[JobId]) -> list[JobId]:
    removed = [job_id for job_id in jobs if session.run("remove_job", id=job_id)]
    for job_id in removed:
        session.run("forget_attempts", job_id=job_id)
        session.run("disclaim_files", job_id=job_id)
    return removed


@command
def set_priority(session: Session, job_id: JobId, priority: int) -> bool:
    return session.run("set_priority", id=job_id, priority=priority) > 0
