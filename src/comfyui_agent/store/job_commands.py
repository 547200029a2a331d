"""What people and programs ask for: submit, cancel, retry, dismiss, remove, change the priority."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from comfyui_agent.domain.bursts import Pick
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.needs import Needs, needs_of_template
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.event_log import note_ending
from comfyui_agent.store.operation import Operation, OperationKind, command, statement
from comfyui_agent.store.port import Deferred, Result, Row, Session


@command
def submit_jobs(session: Session, jobs: Sequence[NewJob], *, are_told: bool = True) -> Result[list[JobId | None]]:
    """Accept jobs, all or none, and record that unless the caller does. Returns ids, None for a name that is taken."""
    if are_told:
        rows = session.ask("submit_jobs", jobs=[facts_of(job) for job in jobs], **workflows_of(jobs))
    else:
        keep_workflows(session, jobs)
        rows = session.ask("insert_jobs", jobs=[facts_of(job) for job in jobs])

    def read(found: Sequence[Row]) -> list[JobId | None]:
        ids = {row["config_name"]: JobId(row["id"]) for row in found}
        return [ids.pop(job.config_name, None) for job in jobs]

    def look_up(session: Session) -> list[JobId | None]:
        return read(session.rows("jobs_of_lost_commit", names=[job.config_name for job in jobs]))

    return Deferred(lambda: read(rows()), look_up)


def facts_of(job: NewJob) -> dict[str, Any]:
    """Columns of a new job by name, without its error."""
    facts = {name: value for name, value in vars(job).items() if name != "template"}
    return facts | {
        "metadata": None if job.metadata is None else json_text(job.metadata),
        "template_hash": job.template.hash if job.template else None,
        "inputs": json_text(job.inputs) if job.inputs else None,
        "pictures": json_text(job.pictures) if job.pictures else None,
        "reserved": 1 if job.reserved else None,
        "needs": needs_of_template(job.template, job.inputs).key if job.template else None,
    }


def keep_workflows(session: Session, jobs: Iterable[NewJob | Pick]) -> None:
    """Store the templates of jobs and what they need, each once."""
    found = workflows_of(jobs)
    if found["templates"]:
        session.send("keep_workflows", **found)


def workflows_of(jobs: Iterable[NewJob | Pick]) -> dict[str, list[dict[str, Any]]]:
    """The templates of jobs and what they need, as rows."""
    templates: dict[str, str] = {}
    needs: dict[str, Needs] = {}
    for job in jobs:
        if job.template is not None:
            templates[job.template.hash] = job.template.text
            found = needs_of_template(job.template, job.inputs)
            needs[found.key] = found
    listed = [{"hash": key, "graph": text} for key, text in templates.items()]
    return {"templates": listed, "needs": [each.as_row() for each in needs.values()]}


@command
def cancel_jobs(session: Session, jobs: Sequence[JobId]) -> list[JobId]:
    """Cancel jobs that have not ended, and return those. A prompt at a server is taken back soon after."""
    cancelled = []
    for job_id in jobs:
        kind = FailureClass.CANCELLED.value
        note_ending(session, Event(EventName.JOB_CANCELLED, job_id=job_id, failure_class=kind))
        if session.run("cancel_job", id=job_id, error_trace="cancelled: by request"):
            cancelled.append(job_id)
    return cancelled


@command
def retry_jobs(session: Session, jobs: Sequence[JobId], *, forget_files: bool = False) -> list[JobId]:
    """Give failed jobs a fresh start, cancelled ones included. Returns those that had failed."""
    retried = [job_id for job_id in jobs if session.run("retry_job", id=job_id)]
    if forget_files:  # or they would be cancelled because their files are gone
        for job_id in retried:
            session.run("forget_file", id=job_id)
    return retried


@command
def remove_jobs(session: Session, jobs: Sequence[JobId]) -> list[JobId]:
    removed = [job_id for job_id in jobs if session.run("remove_job", id=job_id)]
    for job_id in removed:
        session.run("forget_attempts", job_id=job_id)
        session.run("disclaim_files", job_id=job_id)
    session.run("forget_prompts", ids=removed)
    return removed


dismiss_jobs: Operation[[Sequence[JobId]], int] = statement("dismiss_jobs", "ids", kind=OperationKind.COMMAND)
set_priority: Operation[[JobId, int], int] = statement("set_priority", "id", "priority", kind=OperationKind.COMMAND)
rate_jobs: Operation[[Sequence[JobId], int | None], int] = statement("rate_jobs", "ids", "rating")
"""Note what people think of results. No agent has to know."""
