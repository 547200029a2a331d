"""Looking at the memory without changing it."""

from __future__ import annotations

import json

from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.records import Counts


def find_job(session: Session, name: str) -> Job | None:
    """By `config_name`, else by id."""
    row = session.one("job_by_name", name=name)
    if row is None and name.isascii() and name.isdigit() and len(name) < 19:
        row = session.one("job_by_id", id=int(name))
    return None if row is None else job_from(row)


def list_jobs(session: Session, status: JobStatus | None, batch_id: str | None, most: int) -> list[Job]:
    if batch_id is not None:
        rows = session.rows("jobs_of_batch", batch_id=batch_id, status=status.value if status else None, most=most)
    elif status is None:
        rows = session.rows("queued_first", most=most)
    else:
        rows = session.rows(f"jobs_{status}", most=most)
    return [job_from(row) for row in rows]


def attempts_of(session: Session, job_id: JobId) -> list[Attempt]:
    return [
        Attempt(**{key: row[key] for key in Attempt.__dataclass_fields__})
        for row in session.rows("attempts_of_job", job_id=job_id)
    ]


def counts(session: Session) -> Counts:
    return Counts(**{row["status"]: row["jobs"] for row in session.rows("counts")})


def seconds_until_next(session: Session) -> float | None:
    """How long until a job in backoff may run; None if there is none."""
    row = session.one("seconds_until_next")
    return None if row is None else row["seconds"]


def template(session: Session, hash_: str) -> Template | None:
    row = session.one("template", hash=hash_)
    return None if row is None else Template(hash_, row["graph"])


def job_from(row: Row) -> Job:
    facts = {key: row[key] for key in Job.__dataclass_fields__}
    facts["status"] = JobStatus(row["status"])
    facts["outputs"] = tuple(json.loads(row["outputs"])) if row["outputs"] else ()
    facts["needs_regeneration"] = bool(row["needs_regeneration"])
    for count in ("retries_attempted", "run_count", "strikes"):
        facts[count] = row[count] or 0
    return Job(**facts)
