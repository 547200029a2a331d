"""Prompts whose agent is gone: who may take them over, and what is taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.leases import leased_from
from comfyui_agent.store.operation import query, transition
from comfyui_agent.store.outcomes import undelivered
from comfyui_agent.store.port import Row, Session, text
from comfyui_agent.store.records import Leased, OpenAttempt


@query
def open_attempts(session: Session) -> list[OpenAttempt]:
    """Every run without an outcome, oldest first."""
    return [
        OpenAttempt(
            attempt_id=row["attempt_id"],
            job_id=JobId(row["job_id"]),
            server=row["server"] or "",
            prompt_id=row["prompt_id"],
            worker=row["worker_id"],
            fence=row["fence"] or 0,
            status=row["status"] if row["has_job"] else None,
            has_expired=bool(row["has_expired"]),
            attempt_worker=row["attempt_worker"],
            batch_id=text(row["batch_id"]),
            is_reserved=bool(row["is_reserved"]),
            is_lost=bool(row["is_lost"]),
        )
        for row in session.rows("open_attempts")
    ]


@transition
def adopt_attempt(session: Session, attempt: OpenAttempt, worker: str, seconds: float) -> Leased | None:
    """Take a run over, as it was read; None if someone else was quicker or the job has changed."""
    job = session.one(
        "adopt_job",
        id=attempt.job_id,
        fence=attempt.fence,
        attempt_id=attempt.attempt_id,
        worker=worker,
        server=attempt.server,
        prompt_id=attempt.prompt_id,
        seconds=seconds,
    )
    if job is None:
        return None
    row = session.one("adopt_attempt", attempt_id=attempt.attempt_id, worker=worker)
    running = row["running_seconds"] if row else None
    leased = leased_from(job, attempt.attempt_id)
    return replace(leased, is_taken_over=True, previous_worker=attempt.attempt_worker, running_seconds=running)


@transition
def withdraw_attempt(session: Session, attempt: OpenAttempt, words: str = "") -> list[str] | None:
    """Close a run whose result nobody wants any more, with words on what became of it; files noted for it that are not
    a result. None: not closed."""
    error = json_text({"kind": FailureClass.CANCELLED.value, "message": words}) if words else None
    if not session.run("withdraw_attempt", attempt_id=attempt.attempt_id, error=error):
        return None
    return undelivered(session, attempt.job_id)


@query
def owned_prompts(session: Session) -> frozenset[str]:
    return frozenset(row["prompt_id"] for row in session.rows("owned_prompts"))


@transition
def put_back_unattended(session: Session, is_dead: Callable[[str], bool]) -> int:
    """Jobs that are said to be processing while nothing of them is anywhere wait again."""
    return _put_back(session, "unattended_jobs", is_dead)


@transition
def put_back_orphans(session: Session, is_dead: Callable[[str], bool]) -> int:
    """Every job whose lease ran out or whose agent is gone waits again; a prompt at a server is still taken over."""
    return _put_back(session, "processing_jobs", is_dead)


def _put_back(session: Session, query: str, is_dead: Callable[[str], bool]) -> int:
    orphans = [row for row in session.rows(query) if is_orphan(row, is_dead)]
    return sum(session.run("put_back", id=row["id"], worker=row["worker_id"]) for row in orphans)


def is_orphan(job: Row, is_dead: Callable[[str], bool]) -> bool:
    """Whether nobody holds a job that is processing: its lease ran out, or its agent is gone."""
    return bool(job["has_expired"] or (job["worker_id"] and is_dead(job["worker_id"])))


@transition
def recount(session: Session) -> None:
    session.run("recount")
