"""Queries on jobs, attempts and templates."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.domain.jobs import Attempt, Job, JobId, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.operation import Operation, figure, listing, query
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Counts, Holder
from comfyui_agent.store.rows import record


@query
def find_job(session: Session, name: str) -> Job | None:
    """Find a job by `config_name`, else by id."""
    job = find_job_by_name(session, name)
    if job is None and name.isascii() and name.isdigit() and len(name) < 19:
        return find_job_by_id(session, int(name))
    return job


@query
def find_job_by_id(session: Session, job_id: int) -> Job | None:
    row = session.one("job_by_id", id=job_id)
    return None if row is None else record(Job, row)


@query
def find_job_by_name(session: Session, name: str) -> Job | None:
    row = session.one("job_by_name", name=name)
    return None if row is None else record(Job, row)


@query
def find_external_ids(
    session: Session, owner: int | None, ids: Sequence[str], *, with_filling: bool = False
) -> dict[str, Holder]:
    """What has these keys of a token. `owner` None: whoever asked without a token."""
    rows = session.rows("holders_of_external_ids", owner=owner or 0, ids=ids, with_filling=with_filling)
    return {row["external_id"]: record(Holder, row) for row in rows}


@query
def find_external_id(
    session: Session, owner: int | None, external_id: str, *, with_filling: bool = False
) -> Holder | None:
    return find_external_ids(session, owner, [external_id], with_filling=with_filling).get(external_id)


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
        facts = {"status": status.value if status else None, "attention": 1 if attention else None}
        rows = session.rows("jobs_of_batch", batch_id=batch_id, most=limit, **facts)
    elif attention:
        rows = session.rows("jobs_attention", most=limit)
    elif status is None:
        rows = session.rows("queued_first", most=limit)
    else:
        rows = session.rows(f"jobs_{status}", most=limit)
    return [record(Job, row) for row in rows]


list_attempts: Operation[[JobId], list[Attempt]] = listing(Attempt, "attempts_of_job", "job_id")
is_work_waiting: Operation[[], bool] = figure(bool, "is_work_waiting")
"""Whether there is a job that may run, for any server."""
is_queue_idle: Operation[[], bool] = figure(bool, "is_idle")
"""Whether nothing is pending or processing. Looked up, since counts can be wrong after changes by hand."""
open_jobs_of: Operation[[int, int], int] = figure(int, "open_jobs_of", "token_id", "most")
"""How many jobs of a token have not ended, counted up to `most`."""


@query
def count_jobs(session: Session) -> Counts:
    return Counts(**{row["status"]: row["jobs"] for row in session.rows("counts")})


@query
def seconds_until_next(session: Session) -> float | None:
    """Seconds until a job in backoff may run. None if there is none."""
    seconds: float | None = session.value("seconds_until_next")
    return seconds


@query
def find_template(session: Session, hash_: str) -> Template | None:
    graph = session.value("template", hash=hash_)
    return None if graph is None else Template(hash_, graph)
