"""Leases: which worker runs which job. Given by priority and age, kept by heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyui_agent.domain.jobs import AttemptId, JobId
from comfyui_agent.domain.prompts import PromptId
from comfyui_agent.domain.retry_policy import Tally
from comfyui_agent.store.errors import LeaseLost
from comfyui_agent.store.operation import Operation, query, statement, transition
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.records import Lease, Leased, Window
from comfyui_agent.store.rows import record, text

LONGEST_BACKOFF = 24 * 3600.0


@transition
def lease_jobs(
    session: Session,
    worker: str,
    window: Window,
    prompt_ids: Sequence[PromptId],
    seconds: float,
    *,
    longest_backoff: float = LONGEST_BACKOFF,
) -> list[Leased]:
    """Lease the next jobs for a server, as many as its window has room for and prompt ids are given.

    The run and its prompt id are recorded in the same transaction, before anything is sent. A suspect job runs alone on
    its server. A server that people took out of work gets nothing. Members of a serial batch wait for their turn. A job
    whose server was lost is taken from it.
    """
    session.run("end_backoffs", longest=longest_backoff)
    load = session.one("load_of_server", server=window.server, batch_id=window.batch_id)
    assert load is not None
    # An agent for one batch gets at least one prompt in: others would fill the window before it looks.
    least = 1 if window.batch_id is not None and not load["own"] else 0
    ids = prompt_ids[: max(least, window.size - load["open"])]
    if not ids or load["suspects"] or load["is_out_of_work"]:
        return []
    query = "next_jobs" if window.batch_id is None else "next_jobs_of_batch"
    leased: list[Leased] = []
    while len(leased) < len(ids):
        for row in session.rows(query, **vars(window), most=len(ids) - len(leased)):
            if row["strikes"] and (load["open"] or leased):
                return leased
            if row["is_serial"] and session.one("turn_is_taken", batch_id=row["batch_id"], server=window.server):
                session.run("hold_for_turn", batch_id=row["batch_id"])
                break  # look again, without the other members of that batch
            if row["is_lost"] and session.value("leave_server", id=row["id"]):
                session.run("strike_job", id=row["id"])  # executed there, it may have brought that server down
            leased.append(_take(session, row["id"], worker, window.server, ids[len(leased)], seconds))
            if row["strikes"]:
                return leased
        else:
            break
    return leased


def _take(session: Session, job_id: int, worker: str, server: str, prompt_id: PromptId, seconds: float) -> Leased:
    run = {"server": server, "prompt_id": prompt_id, "worker": worker}
    job = session.one("take_job", id=job_id, seconds=seconds, **run)
    assert job is not None
    attempt_id = session.value("open_attempt", job_id=job_id, number=job["run_count"], **run)
    session.run("note_started", job_id=job_id)
    return leased_from(job, attempt_id)


def leased_from(job: Row, attempt_id: int) -> Leased:
    """A lease from the row of its job."""
    lease = Lease(JobId(job["id"]), job["fence"], AttemptId(attempt_id))
    return record(Leased, job, lease=lease, tally=record(Tally, job), last_failure=text(job["failure_class"]))


@transition
def renew_leases(session: Session, worker: str, seconds: float) -> frozenset[tuple[JobId, int]]:
    """Prolong all leases of a worker and its heartbeat. Returns the leases that it still has, as job and fence."""
    session.run("beat_agent", worker=worker)
    return _pairs(session.rows("renew_leases", worker=worker, seconds=seconds))


@query
def held_leases(session: Session, worker: str) -> frozenset[tuple[JobId, int]]:
    return _pairs(session.rows("held_leases", worker=worker))


def _pairs(rows: list[Row]) -> frozenset[tuple[JobId, int]]:
    return frozenset((JobId(row["id"]), row["fence"]) for row in rows)


def change_leased(session: Session, query: str, lease: Lease, **values: Any) -> Row:
    """Change a job by a query that takes its id and fence. LeaseLost if the job is no longer this worker's."""
    row = session.one(query, id=lease.job_id, fence=lease.fence, **values)
    if row is None:
        raise LeaseLost(f"job {lease.job_id} is no longer this worker's")
    return row


@transition
def note_running(session: Session, lease: Lease, seconds: float) -> None:
    session.run("note_running", **vars(lease), seconds=round(seconds, 3))


release_jobs: Operation[[str], int] = statement("release_jobs", "worker")
