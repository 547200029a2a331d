"""What people and doors ask for: submit, cancel, retry, bump."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId, NewJob, Template
from comfyui_agent.store.port import Session
from comfyui_agent.store.recording import note


def submit(session: Session, jobs: Sequence[NewJob]) -> list[JobId | None]:
    """Accept jobs, all or none; None in the place of one whose name is taken."""
    known: set[str] = set()
    return [_submit_one(session, job, known) for job in jobs]


def _submit_one(session: Session, job: NewJob, known: set[str]) -> JobId | None:
    if job.template is not None and job.template.hash not in known:
        keep_template(session, job.template)
        known.add(job.template.hash)
    row = session.one(
        "insert_job",
        config_name=job.config_name,
        job_type=job.job_type,
        workflow_id=job.workflow_id,
        priority=job.priority,
        retry_limit=job.retry_limit,
        metadata=None if job.metadata is None else json.dumps(job.metadata, ensure_ascii=False),
        template_hash=job.template.hash if job.template else None,
        inputs=json.dumps(job.inputs, ensure_ascii=False) if job.inputs else None,
        file_path=job.file_path,
        output_node=job.output_node,
        timeout_seconds=job.timeout_seconds,
        batch_id=job.batch_id,
        batch_index=job.batch_index,
    )
    if row is None:
        return None
    session.run("note_submitted", job_id=row["id"])
    return JobId(row["id"])


def keep_template(session: Session, template: Template) -> None:
    session.run("keep_template", hash=template.hash, graph=template.text)


def cancel(session: Session, jobs: Iterable[JobId]) -> list[JobId]:
    """End jobs that have not ended; those that were. A prompt at a server is taken back soon after."""
    return [job_id for job_id in jobs if _cancel_one(session, job_id)]


def _cancel_one(session: Session, job_id: JobId) -> bool:
    row = session.one("cancel_job", id=job_id, error_trace="cancelled: by request")
    if row is None:
        return False
    kind = FailureClass.CANCELLED.value
    note(session, Event(EventName.JOB_CANCELLED, job_id=job_id, failure_class=kind, **row))
    return True


def retry(session: Session, jobs: Iterable[JobId]) -> list[JobId]:
    """Give failed jobs a fresh start, cancelled ones included; those that had failed."""
    return [job_id for job_id in jobs if session.run("retry_job", id=job_id)]


def set_priority(session: Session, job_id: JobId, priority: int) -> bool:
    return session.run("set_priority", id=job_id, priority=priority) > 0
