"""Batches: filled, opened, paused, retried, and their grids.

The trigger `batch_landed` completes a batch when its last member ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, NewBatch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job, JobId, NewJob
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.errors import BatchTaken
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.job_commands import keep_template, submit_jobs
from comfyui_agent.store.job_queries import job_from
from comfyui_agent.store.operation import command, query, transition
from comfyui_agent.store.port import Row, Session, parsed_object, text, whole_number

DISCARDED_AT_ONCE = 5_000
DURATIONS_LOOKED_AT = 100


@transition
def create_batch(session: Session, batch: NewBatch, creator: str | None) -> None:
    """Create a batch to be filled. None of its jobs runs before it is opened. BatchTaken if the id is taken."""
    created = session.run(
        "create_batch",
        id=batch.id,
        name=batch.name,
        kind=batch.kind.value,
        metadata=json_text(batch.metadata),
        creator=creator,
        is_serial=int(batch.is_serial),
        wants_grid=int(batch.wants_grid),
        created_by=batch.created_by,
    )
    if not created:
        raise BatchTaken(f"there is a batch {batch.id} already: give this one another name")


@transition
def fill_batch(session: Session, jobs: Sequence[NewJob]) -> list[JobId]:
    """Add jobs to their batch, all or none. BatchTaken if a name is taken."""
    filled = {job.batch_id for job in jobs}
    rows = [session.one("batch_by_id", id=batch_id) for batch_id in filled]
    is_whole = all(row is None or row["status"] != BatchStatus.PENDING.value for row in rows)
    ids = submit_jobs(session, jobs, are_told=is_whole)
    for job, job_id in zip(jobs, ids, strict=True):
        if job_id is None:
            raise BatchTaken(f"there is a job {job.config_name} already: give the batch another name")
    return [job_id for job_id in ids if job_id is not None]


@command
def open_batch(session: Session, batch_id: str) -> None:
    """Note that a batch is whole. Its jobs may run from now on."""
    if session.run("open_batch", id=batch_id):
        session.run("note_members_submitted", id=batch_id)
        session.run("release_members", id=batch_id)
        add_event(session, Event(EventName.BATCH_CREATED, batch_id=batch_id))
        session.run("complete_empty", id=batch_id)


@command
def group_jobs(session: Session, batch: NewBatch, jobs: Sequence[JobId]) -> int:
    """Make a batch of existing jobs that are in no other. Returns how many; they may have ended already."""
    create_batch(session, batch, None)
    joined = session.run("join_batch", id=batch.id, ids=json_text(list(jobs)))
    open_batch(session, batch.id)
    return joined


@transition
def discard_unfinished(session: Session, host: str) -> int:
    """Remove batches whose creator died before they were whole, some jobs at a time. Returns how many rows."""
    removed = 0
    for row in session.rows("abandoned_batches", host=host):
        removed += session.run("discard_members", id=row["id"], most=DISCARDED_AT_ONCE - removed)
        if removed >= DISCARDED_AT_ONCE:
            return removed
        removed += session.run("discard_batch", id=row["id"])
    return removed


@query
def find_batch(session: Session, batch_id: str) -> Batch | None:
    row = session.one("batch_by_id", id=batch_id)
    return None if row is None else batch_from(session, row)


@query
def newest_batches(session: Session, *, kind: BatchKind | None = None, limit: int = 50) -> list[Batch]:
    rows = session.rows("newest_batches", kind=kind.value if kind else None, most=limit)
    return [batch_from(session, row) for row in rows]


@query
def members_after(session: Session, batch_id: str, after: Job | None, most: int, *, is_whole: bool) -> list[Job]:
    """At most `most` members behind one of them, in their order. Members without a place come in the last part.

    Large values are left out, unless the members are wanted whole.
    """
    keys = {"after": -1, "after_id": 0}
    if after is not None:
        if after.batch_index is None:
            return []
        keys = {"after": after.batch_index, "after_id": after.id}
    placed, loose = (
        ("members_after", "members_without_place")
        if is_whole
        else ("brief_members_after", "brief_members_without_place")
    )
    rows = session.rows(placed, id=batch_id, most=most, **keys)
    rows = rows or session.rows(loose, id=batch_id, most=most)
    return [job_from(row) for row in rows]


def batch_from(session: Session, row: Row) -> Batch:
    """A batch from its row, with its members counted."""
    counts = {each["status"]: each["jobs"] for each in session.rows("counts_of_batch", id=row["id"])}
    attention = session.one("attention_of_batch", id=row["id"]) if counts.get(JobStatus.FAILED.value) else None
    is_complete = row["status"] == BatchStatus.COMPLETE.value
    return Batch(
        id=row["id"],
        name=text(row["name"]) or "",
        kind=BatchKind(row["kind"]) if row["kind"] in set(BatchKind) else BatchKind.FILES,
        status=BatchStatus(row["status"]),
        generation=row["generation"],
        created_at=text(row["created_at"]) or "",
        completed_at=text(row["completed_at"]),
        grid=text(row["grid"]),
        reason=text(row["reason"]),
        is_paused=bool(row["is_paused"]),
        grid_problem=text(row["grid_problem"]),
        is_grid_due=bool(row["wants_grid"] and is_complete and row["grid_generation"] < row["generation"]),
        metadata=parsed_object(row["metadata"]),
        created_by=whole_number(row["created_by"]),
        attention=attention["jobs"] if attention else 0,
        **{status.value: counts.get(status.value, 0) for status in JobStatus},
    )


@query
def book_pages(
    session: Session,
    book_id: str,
    *,
    after: float = -math.inf,
    until: float = math.inf,
    most_bytes: int | None = None,
) -> list[dict[str, Any]]:
    """Pages of a book between two numbers.

    With `most_bytes`, each page has an equal share for its failures and its metadata. Longer failures are cut to the
    newest one, longer metadata is left out.
    """
    count = session.one("count_of_pages", id=book_id, after=after, until=until)
    share = None if most_bytes is None or count is None else most_bytes // max(1, count["pages"]) // 2
    found = []
    for row in session.rows("pages_of_book", id=book_id, after=after, until=until, longest=share):
        page = dict(row) | {"needs_regeneration": bool(row["needs_regeneration"])}
        page["last_attempted_at"] = text(row["last_attempted_at"])
        found.append(page | {key: json.loads(row[key]) for key in ("image_error", "job_metadata")})
    return found


@command
def retry_batch(session: Session, batch_id: str, *, with_cancelled: bool = False) -> int:
    """Give the failed members a fresh start in one generation. Returns how many."""
    return session.run("retry_members", id=batch_id, with_cancelled=int(with_cancelled))


@command
def dismiss_batch(session: Session, batch_id: str) -> int:
    return session.run("dismiss_members", id=batch_id)


@command
def pause_batch(session: Session, batch_id: str) -> bool:
    """Keep pending members from running. Members at a server run on. False if there is nothing to pause."""
    if not session.run("pause_batch", id=batch_id):
        return False
    session.run("pause_members", id=batch_id)
    return True


@command
def resume_batch(session: Session, batch_id: str) -> bool:
    if not session.run("resume_batch", id=batch_id):
        return False
    session.run("resume_members", id=batch_id)
    return True


def resubmit(session: Session, job_id: JobId, changed: NewJob | None, *, avoid_cache: bool) -> bool:
    """Make an ended job pending again, as it was or changed. False if it has not ended."""
    if not session.run("resubmit_job", id=job_id, avoid_cache=int(avoid_cache)):
        return False
    if changed is not None:
        change_job(session, job_id, changed)
    session.run("withdraw_attempts", job_id=job_id)
    return True


@command
def resubmit_jobs(
    session: Session, changes: Sequence[tuple[JobId, NewJob | None]], *, avoid_cache: bool = False
) -> list[JobId]:
    """Make ended jobs pending again, as they were or changed. Returns those that had ended."""
    return [job_id for job_id, changed in changes if resubmit(session, job_id, changed, avoid_cache=avoid_cache)]


def change_job(session: Session, job_id: JobId, changed: NewJob) -> None:
    if changed.template is not None:
        keep_template(session, changed.template)
    session.run(
        "change_job",
        id=job_id,
        template_hash=changed.template.hash if changed.template else None,
        inputs=json_text(changed.inputs),
        pictures=json_text(changed.pictures) if changed.pictures else None,
        metadata=json_text(changed.metadata) if changed.metadata is not None else None,
        workflow_id=changed.workflow_id,
    )


@transition
def free_turns(session: Session) -> int:
    return session.run("free_turns")


@query
def is_batch_idle(session: Session, batch_id: str) -> bool:
    """Whether no member of a batch runs or may run soon, and no grid of it is due."""
    row = session.one("is_batch_idle", id=batch_id)
    return bool(row and row["idle"])


@query
def past_durations(session: Session, workflow_id: str) -> list[float]:
    """Durations of recent renders of one workflow, in seconds."""
    rows = session.rows("past_durations", workflow_id=workflow_id, most=DURATIONS_LOOKED_AT)
    return [float(row["duration"]) for row in rows]


# Grids: the worker that claims one makes it. The claim of a dead worker can be taken.


@transition
def claim_grid(session: Session, worker: str, host: str, only: str | None = None) -> tuple[str, int] | None:
    """Claim a grid that is due for this worker to make: the batch and its generation. None if there is none."""
    row = session.one("due_grid", id=only, host=host)
    if row is None:
        return None
    session.run("claim_grid", id=row["id"], worker=worker)
    return row["id"], row["generation"]


@transition
def settle_grid(
    session: Session,
    batch_id: str,
    worker: str,
    generation: int,
    *,
    grid: str | None = None,
    problem: str | None = None,
) -> bool:
    """Note that a grid was made, or why it cannot be. False if the claim is no longer this worker's."""
    facts = {"id": batch_id, "worker": worker, "generation": generation, "grid": grid, "problem": problem}
    if not session.run("settle_grid", **facts):
        return False
    if problem is not None:
        add_event(session, Event(EventName.ALERT_GRID, batch_id=batch_id, message=problem))
    return True


@transition
def release_grids(session: Session, worker: str) -> None:
    session.run("release_grids", worker=worker)


@transition
def note_grid(session: Session, batch: Batch, grid: str) -> None:
    """Note a grid that was made by request."""
    generation = batch.generation if batch.status is BatchStatus.COMPLETE else None
    session.run("note_grid", id=batch.id, grid=grid, generation=generation)
