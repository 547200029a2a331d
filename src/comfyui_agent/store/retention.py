"""Removing what is old, in parts: each is one short transaction. Nothing that is open is touched, nor any of its batch.

Files are discarded inside the transaction that removes their rows, and before it commits: nobody else can claim them
meanwhile, and what a killed process left has its rows still, so that the next run finishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store.operation import Operation, column, figure, query, statement, transition
from comfyui_agent.store.port import Session
from comfyui_agent.store.rows import text, time_text

JOBS_AT_ONCE = 200
ROWS_AT_ONCE = 2_000
SWEEPS = {"events": ("next_events", "remove_old_events"), "attempts": ("next_attempts", "remove_old_attempts")}
EARLIEST = datetime(1, 1, 1, tzinfo=timezone.utc)

Discard = Callable[[Sequence[str], Sequence[str]], None]
"""Is given the paths of results and the job files of what is removed. It may be called twice for the same ones."""

old_batches: Operation[[datetime, str, int], list[str]] = column(list, "old_batches", "before", "after", "most")
prunable_jobs: Operation[[datetime], list[int]] = column(list, "prunable_jobs", "before")
forget_requests: Operation[[int], int] = statement("prune_requests", "days")
bytes_of_unused_templates: Operation[[], int] = figure(int, "bytes_of_unused_templates")


@dataclass(frozen=True)
class RemovedPart:
    """What one transaction removed. `next` is where the next part begins; None after the last one."""

    rows: int
    next: Any = None
    attempts: int = 0
    events: int = 0


@query
def moment_before(session: Session, seconds: float) -> datetime:
    """The time so many seconds ago, by the database's clock."""
    now: datetime = session.value("now")
    return now - timedelta(seconds=seconds)


@query
def files_of(session: Session, job_ids: Sequence[int], batch_ids: Sequence[str]) -> list[str]:
    """The results of jobs and the grids of batches. Grids that a person wanted elsewhere are theirs."""
    rows = [row for batch_id in batch_ids for row in session.rows("grid_files_of", id=batch_id) if not row["output"]]
    return [row["path"] for row in [*session.rows("files_of_jobs", ids=list(job_ids)), *rows]]


@transition
def remove_old_batch(session: Session, batch_id: str, before: datetime, discard: Discard) -> bool:
    """Remove a batch, unless it is not old any more. Its members are jobs of no batch then."""
    if not session.run("remove_old_batch", id=batch_id, before=before):
        return False
    paths = [row["path"] for row in session.rows("forget_grid_files", id=batch_id) if not row["output"]]
    discard([path for path in paths if session.one("owner_of_file", path=path) is None], ())
    return True


@transition
def remove_old_jobs(session: Session, status: JobStatus, before: datetime, since: Any, discard: Discard) -> RemovedPart:
    """Remove the next jobs that ended before a time and are in no batch, with all that belongs to them alone."""
    rows = session.rows("old_jobs", status=status.value, before=before, since=since, most=JOBS_AT_ONCE)
    ids = [row["id"] for row in rows]
    if not ids:
        return RemovedPart(0)
    attempts = session.run("forget_attempts_of_jobs", ids=ids)
    events = session.run("forget_events_of_jobs", ids=ids)
    paths = [row["path"] for row in session.rows("forget_files_of_jobs", ids=ids)]
    session.run("forget_prompts", ids=ids)
    removed = session.run("remove_old_jobs", ids=ids)
    discard(paths, [source for row in rows if (source := text(row["source"])) is not None])
    return RemovedPart(removed, rows[-1]["end_time"] if len(ids) == JOBS_AT_ONCE else None, attempts, events)


@transition
def remove_old_rows(session: Session, table: str, before: datetime, after: int) -> RemovedPart:
    """Remove old rows of `events` or `attempts` among the next ones. The audit trail stays."""
    next_part, remove = SWEEPS[table]
    part = session.one(next_part, after=after, most=ROWS_AT_ONCE)
    if part is None or part["last"] is None or (isinstance(part["at"], datetime) and part["at"] >= before):
        return RemovedPart(0)
    return RemovedPart(session.run(remove, after=after, last=part["last"], before=before), part["last"])


@transition
def remove_unused_templates(session: Session) -> int:
    """Remove templates that no job uses, nor one that is being submitted."""
    session.rows("await_submissions")
    return session.run("remove_unused_templates")


@transition
def claim_retention(session: Session, seconds: float) -> bool:
    """Whether it is this process's turn: nobody has had it for so many seconds."""
    now: datetime = session.value("now")
    due = now - timedelta(seconds=seconds)
    return bool(session.run("claim_retention", now=time_text(now), due=time_text(due)))
