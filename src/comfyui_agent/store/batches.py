"""Batches and their members. The trigger `batch_landed` completes a batch when its last member ends."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus, NewBatch
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job, JobId, NewJob
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text
from comfyui_agent.store.errors import BatchTaken
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.job_commands import facts_of, keep_workflows, submit_jobs
from comfyui_agent.store.operation import (
    Operation,
    OperationKind,
    command,
    figure,
    listing,
    query,
    statement,
    transition,
)
from comfyui_agent.store.port import Row, Session
from comfyui_agent.store.rows import record, text
from comfyui_agent.store.store import Store

MEMBERS_AT_ONCE = 1_000
DISCARDED_AT_ONCE = 5_000
DURATIONS_LOOKED_AT = 100
WHOLE_MEMBERS = ("members_after", "members_without_place")
BRIEF_MEMBERS = ("brief_members_after", "brief_members_without_place")


@transition
def create_batch(session: Session, batch: NewBatch, creator: str | None) -> None:
    """Create a batch to be filled. None of its jobs runs before it is opened. BatchTaken if the id is taken."""
    facts = vars(batch) | {"kind": batch.kind.value, "metadata": json_text(batch.metadata), "creator": creator}
    if not session.run("create_batch", **facts):
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
    joined = session.run("join_batch", id=batch.id, ids=jobs)
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
    """At most `most` members behind one of them, in their order. Those without a place come last."""
    keys = {"after": -1, "after_id": 0}
    if after is not None:
        if after.batch_index is None:
            return []
        keys = {"after": after.batch_index, "after_id": after.id}
    placed, loose = WHOLE_MEMBERS if is_whole else BRIEF_MEMBERS
    rows = session.rows(placed, id=batch_id, most=most, **keys) or session.rows(loose, id=batch_id, most=most)
    return [record(Job, row) for row in rows]


async def batch_members(store: Store, batch_id: str, *, is_whole: bool = False) -> AsyncIterator[Job]:
    """Every member in order, read in parts. Large values are left out, unless the members are wanted whole."""
    last: Job | None = None
    while found := await store.run(members_after, batch_id, last, MEMBERS_AT_ONCE, is_whole=is_whole):
        for job in found:
            yield job
        last = found[-1]


@query
def members_at(session: Session, batch_id: str, indexes: Sequence[int]) -> list[Job]:
    """The members at these places, in order. The cost grows with how many these are, not with the size of the batch."""
    rows = session.rows("brief_members_at", id=batch_id, indexes=sorted(set(indexes)))
    return [record(Job, row) for row in rows]


members_without_place: Operation[[str, int], list[Job]] = listing(Job, "brief_members_without_place", "id", "most")
"""Members that someone put in by hand, without a place."""


def batch_from(session: Session, row: Row) -> Batch:
    """A batch from its row, with its members counted."""
    counts = {each["status"]: each["jobs"] for each in session.rows("counts_of_batch", id=row["id"])}
    is_complete = row["status"] == BatchStatus.COMPLETE.value
    return record(
        Batch,
        row,
        kind=BatchKind(row["kind"]) if row["kind"] in set(BatchKind) else BatchKind.FILES,
        is_grid_due=bool(row["wants_grid"] and is_complete and row["grid_generation"] < row["generation"]),
        attention=session.value("attention_of_batch", id=row["id"]) if counts.get(JobStatus.FAILED.value) else 0,
        **counts,
    )


@query
def book_pages(
    session: Session, book_id: str, *, after: float = -math.inf, until: float = math.inf, most_bytes: int | None = None
) -> list[dict[str, Any]]:
    """Pages of a book between two numbers. With `most_bytes`, failures are cut and metadata left out where too long."""
    count = session.value("count_of_pages", id=book_id, after=after, until=until)
    share = None if most_bytes is None else most_bytes // max(1, count) // 2
    found = []
    for row in session.rows("pages_of_book", id=book_id, after=after, until=until, longest=share):
        page = dict(row) | {"needs_regeneration": bool(row["needs_regeneration"])}
        page["last_attempted_at"] = text(row["last_attempted_at"])
        found.append(page | {key: json.loads(row[key]) for key in ("image_error", "job_metadata")})
    return found


@command
def retry_batch(session: Session, batch_id: str, *, with_cancelled: bool = False) -> int:
    """Give the failed members a fresh start in one generation. Returns how many."""
    return session.run("retry_members", id=batch_id, with_cancelled=with_cancelled)


dismiss_batch: Operation[[str], int] = statement("dismiss_batch", "id", kind=OperationKind.COMMAND)


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


@command
def resubmit_jobs(
    session: Session, changes: Sequence[tuple[JobId, NewJob | None]], *, avoid_cache: bool = False
) -> list[JobId]:
    """Make ended jobs pending again, as they were or changed. Returns those that had ended."""
    resubmitted = []
    for job_id, changed in changes:
        if not session.run("resubmit_job", id=job_id, avoid_cache=avoid_cache):
            continue
        resubmitted.append(job_id)
        if changed is not None:
            keep_workflows(session, [changed])
            session.run("change_job", **facts_of(changed) | {"id": job_id, "inputs": json_text(changed.inputs)})
        session.run("withdraw_attempts", job_id=job_id)
    return resubmitted


free_turns: Operation[[], int] = statement("free_turns")
is_batch_idle: Operation[[str], bool] = figure(bool, "is_batch_idle", "id")
"""Whether no member of a batch runs or may run soon, and no grid of it is due."""


@query
def past_durations(session: Session, workflow_id: str) -> list[float]:
    """Durations of recent renders of one workflow, in seconds."""
    rows = session.rows("past_durations", workflow_id=workflow_id, most=DURATIONS_LOOKED_AT)
    return [float(row["duration"]) for row in rows]
