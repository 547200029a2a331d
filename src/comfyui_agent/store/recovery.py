"""Runs whose agent is gone: taken over, or closed when nobody wants the result."""

from __future__ import annotations

from dataclasses import replace

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.leases import leased_from
from comfyui_agent.store.operation import Operation, column, query, statement, transition
from comfyui_agent.store.outcomes import undelivered
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Leased, OpenAttempt
from comfyui_agent.store.rows import record


@query
def open_attempts(session: Session, host: str = "") -> list[OpenAttempt]:
    """Every run without an outcome, oldest first. `host` is the caller's; without it, only heartbeats show life."""
    return [record(OpenAttempt, row) for row in session.rows("open_attempts", host=host)]


@transition
def adopt_attempt(session: Session, attempt: OpenAttempt, worker: str, seconds: float) -> Leased | None:
    """Take over a run that was read before. None if another agent was quicker or the job has changed."""
    job = session.one("adopt_job", **vars(attempt) | {"id": attempt.job_id, "worker": worker, "seconds": seconds})
    if job is None:
        return None
    running = session.value("adopt_attempt", attempt_id=attempt.attempt_id, worker=worker)
    leased = leased_from(job, attempt.attempt_id)
    return replace(leased, is_taken_over=True, previous_worker=attempt.attempt_worker, running_seconds=running)


@transition
def withdraw_attempt(session: Session, attempt: OpenAttempt, words: str = "") -> list[str] | None:
    """Close a run whose result nobody wants. Returns its claimed and undelivered files; None if it was not closed."""
    error = json_text({"kind": FailureClass.CANCELLED.value, "message": words}) if words else None
    if not session.run("withdraw_attempt", attempt_id=attempt.attempt_id, error=error):
        return None
    return undelivered(session, attempt.job_id)


owned_prompts: Operation[[], frozenset[str]] = column(frozenset, "owned_prompts")
put_back_unattended: Operation[[str], int] = statement("put_back_unattended", "host")
"""Makes jobs wait again that are processing without a run at a server and without a living agent."""
put_back_orphans: Operation[[str], int] = statement("put_back_orphans", "host")
"""Makes every job wait again whose lease ran out or whose agent is dead. Its prompt is still taken over."""
recount: Operation[[], int] = statement("recount")
