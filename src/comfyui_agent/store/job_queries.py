"""Queries on jobs, attempts and templates."""

from __future__ import annotations

from typing import Any

from comfyui_agent.domain.attempts import Attempt
from comfyui_agent.domain.jobs import Job, JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.operation import query
from comfyui_agent.store.port import Row, Session, number, paths_in, text, whole_number
from comfyui_agent.store.records import Counts

COLUMNS = tuple(name for name in Job.__dataclass_fields__ if name != "is_shortened")
TEXTS = frozenset(name for name, each in Job.__dataclass_fields__.items() if "str" in str(each.type)) - {"outputs"}


@query
def find_job(session: Session, name: str) -> Job | None:
    """Find a job by `config_name`, else by id."""
    row = session.one("job_by_name", name=name)
    if row is None and name.isascii() and name.isdigit() and len(name) < 19:
        row = session.one("job_by_id", id=int(name))
    return None if row is None else job_from(row)


@query
def find_job_by_id(session: Session, job_id: int) -> Job | None:
    row = session.one("job_by_id", id=job_id)
    return None if row is None else job_from(row)


@query
def find_job_by_name(session: Session, name: str) -> Job | None:
    row = session.one("job_by_name", name=name)
    return None if row is None else job_from(row)


@query
def list_jobs(
    session: Session,
    *,
    status: JobStatus | None = None,
    batch_id: str | None = None,
    attention: bool = False,
    limit: int = 50,
) -> list[Job]:
    """Jobs in the order of `e3 queue ls`. With `attention`, only jobs that need it."""
    if batch_id is not None:
        state = status.value if status else None
        rows = session.rows(
            "jobs_of_batch", batch_id=batch_id, status=state, attention=1 if attention else None, most=limit
        )
    elif attention:
        rows = session.rows("jobs_attention", most=limit)
    elif status is None:
        rows = session.rows("queued_first", most=limit)
    else:
        rows = session.rows(f"jobs_{status}", most=limit)
    return [job_from(row) for row in rows]


@query
def list_attempts(session: Session, job_id: JobId) -> list[Attempt]:
    rows = [
        {**row, "started_at": text(row["started_at"]), "ended_at": text(row["ended_at"])}
        for row in session.rows("attempts_of_job", job_id=job_id)
    ]
    return [Attempt(**{key: row[key] for key in Attempt.__dataclass_fields__}) for row in rows]


@query
def is_queue_idle(session: Session) -> bool:
    """Whether nothing is pending or processing. Looked up, since counts can be wrong after changes by hand."""
    row = session.one("is_idle")
    return bool(row and row["idle"])


@query
def open_jobs_of(session: Session, token_id: int, most: int) -> int:
    """How many jobs of a token have not ended, counted up to `most`."""
    row = session.one("open_jobs_of", token_id=token_id, most=most)
    return 0 if row is None else int(row["jobs"])


@query
def count_jobs(session: Session) -> Counts:
    return Counts(**{row["status"]: row["jobs"] for row in session.rows("counts")})


@query
def seconds_until_next(session: Session) -> float | None:
    """Seconds until a job in backoff may run. None if there is none."""
    row = session.one("seconds_until_next")
    return None if row is None else row["seconds"]


@query
def find_template(session: Session, hash_: str) -> Template | None:
    row = session.one("template", hash=hash_)
    return None if row is None else Template(hash_, row["graph"])


def job_from(row: Row) -> Job:
    """A job from its row. People write rows by hand: values of other types are converted."""
    facts: dict[str, Any] = {key: text(row[key]) if key in TEXTS else row[key] for key in COLUMNS}
    facts["is_shortened"] = bool(row.get("is_shortened"))
    facts["status"] = JobStatus(row["status"])
    facts["outputs"] = paths_in(row["outputs"])
    facts["needs_regeneration"] = bool(row["needs_regeneration"])
    for count in ("retries_attempted", "run_count", "strikes", "fence"):
        facts[count] = whole_number(row[count]) or 0
    facts["duration"] = number(row["duration"])
    facts["created_by"] = whole_number(row["created_by"])
    return Job(**facts)
