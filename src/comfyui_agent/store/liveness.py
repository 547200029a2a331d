"""Which processes are alive, by rows in `agents` and the database's clock, and what becomes of the runs of dead ones.

A process is dead if it has no row, or if its row is of another host and its heartbeat is older than 60 seconds. On its
own host a held lock file means alive, however old the heartbeat is.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.agent_lock import PAGE, PART, AgentLock, is_attended_here, is_free, this_host, working
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.leases import leased_from
from comfyui_agent.store.operation import Operation, OperationRunner, column, query, statement, transition
from comfyui_agent.store.outcomes import undelivered
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Leased, OpenAttempt
from comfyui_agent.store.rows import record

BEAT_SECONDS = 10.0
FORGOTTEN_AFTER_DAYS = 30


@transition
def register_agent(session: Session, worker: str, host: str, lock: str) -> None:
    """Note that a process lives. It holds its lock already, and nothing in the database yet."""
    session.run("forget_agents", host=host, days=FORGOTTEN_AFTER_DAYS)
    session.run("register_agent", worker=worker, host=host, lock=lock)


beat_agent: Operation[[str], int] = statement("beat_agent", "worker")
remove_agent: Operation[[str], int] = statement("remove_agent", "worker")


@query
def agents_of_host(session: Session, host: str) -> list[tuple[str, Path]]:
    """Workers of a host with their lock files."""
    return [(row["worker_id"], Path(row["lock"])) for row in session.rows("agents_of_host", host=host)]


living_agents: Operation[[str], list[str]] = column(list, "living_agents", "host")
"""Every worker that is alive, as far as the rows say."""


@query
def agents_elsewhere(session: Session, host: str) -> list[str]:
    """Workers of other hosts whose heartbeats are fresh."""
    return [row["worker_id"] for row in session.rows("agents_elsewhere", host=host)]


async def is_attended(store: OperationRunner, locks: Path) -> bool:
    """Whether a living worker works off the whole queue, in this workspace or on another host."""
    return is_attended_here(locks) or any(
        not worker.endswith(PART) for worker in await store.run(agents_elsewhere, this_host())
    )


async def is_worked_on(store: OperationRunner, locks: Path) -> bool:
    """Whether a living worker runs jobs, in this workspace or on another host."""
    return bool(working(locks)) or any(
        not worker.endswith(PAGE) for worker in await store.run(agents_elsewhere, this_host())
    )


async def bury_dead(store: OperationRunner, host: str) -> None:
    """Remove the rows of this host whose lock files are free or gone. Dead processes of other hosts stop beating."""
    for worker, lock in await store.run(agents_of_host, host):
        if is_free(lock):
            await store.run(remove_agent, worker)


@contextlib.asynccontextmanager
async def registered(store: OperationRunner, lock: AgentLock) -> AsyncIterator[None]:
    """Have a row while this block runs, and give the lock back at its end."""
    try:
        for worker in lock.dead():  # of this folder, before the machine or the container was restarted
            await store.run(remove_agent, worker)
        await store.run(register_agent, lock.worker, lock.host, str(lock.path))
        yield
    finally:
        with contextlib.suppress(StoreError):  # without a lock it is buried by the next process that looks
            await store.run(remove_agent, lock.worker)
        lock.release()


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
