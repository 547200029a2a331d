"""Batches that end before they are complete: cancelled, or expired.

The batch ends at once. Its members end in parts, so that other writers never wait long; what a killed process left is
finished by any agent. No listed member is leased meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from comfyui_agent.domain.batches import BatchStatus
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.store.event_log import add_event
from comfyui_agent.store.operation import OperationRunner, command, transition
from comfyui_agent.store.port import Row, Session

ENDED_AT_ONCE = 500
PAUSE_SECONDS = 0.02
"""Between two parts, for the writers of other processes that wait."""


async def cancel_batch(store: OperationRunner, batch_id: str) -> int | None:
    """Cancel a batch. Returns how many members had not ended; None if the batch has ended already."""
    count = await store.run(begin_cancel, batch_id)
    if count is not None:
        await end_members(store)
    return count


async def end_members(store: OperationRunner) -> None:
    """End all members of batches that were cancelled or have expired, part by part."""
    while True:
        if not await store.run(end_next_members):
            return
        await asyncio.sleep(PAUSE_SECONDS)


@command
def begin_cancel(session: Session, batch_id: str) -> int | None:
    """Mark a batch as cancelled and end the first part of its members. Returns how many had not ended."""
    return _begin(session, batch_id, BatchStatus.CANCELLED, "by request")


@transition
def tick_batches(session: Session, batch_ids: Sequence[str], longest_gap: float, expiry: float) -> list[str]:
    """Add to the time for which members are rendered without a result. Returns the batches that expire by that."""
    expired = []
    for batch_id in batch_ids:
        row = session.one("tick_batch", id=batch_id, most=longest_gap)
        if row is not None and row["quiet_seconds"] >= expiry:
            reason = f"no result for {expiry:g} s although members were being rendered (batch_expiry_seconds)"
            if _begin(session, batch_id, BatchStatus.EXPIRED, reason) is not None:
                expired.append(batch_id)
    return expired


def _begin(session: Session, batch_id: str, status: BatchStatus, reason: str) -> int | None:
    """End the batch, what is at work, and a first part of what waits. A batch that has ended is not completed."""
    if not session.run("end_batch", id=batch_id, status=status.value, reason=reason):
        return None
    session.run("begin_ending", id=batch_id, status=status.value, reason=reason)
    ending = {"batch_id": batch_id, "status": status.value, "reason": reason}
    count = session.run("list_open_members", id=batch_id)
    _end(session, ending, session.rows("processing_members", id=batch_id))
    _end_part(session, ending)
    return count


@transition
def end_next_members(session: Session) -> bool:
    """End some members of a batch that is ending. False if there is no such batch."""
    ending = session.one("next_ending")
    if ending is not None:
        _end_part(session, ending)
    return ending is not None


def _end_part(session: Session, ending: Row) -> None:
    """End the next members. After the last one, tell of the end of the batch."""
    batch_id = ending["batch_id"]
    members = session.rows("next_ending_members", id=batch_id, most=ENDED_AT_ONCE)
    _end(session, ending, members)
    if len(members) < ENDED_AT_ONCE:
        session.run("finish_ending", id=batch_id)
        is_cancelled = ending["status"] == BatchStatus.CANCELLED.value
        name = EventName.BATCH_CANCELLED if is_cancelled else EventName.BATCH_EXPIRED
        add_event(session, Event(name, batch_id=batch_id, message=ending["reason"]))


def _end(session: Session, ending: Row, members: Sequence[Row]) -> None:
    batch_id, reason = ending["batch_id"], ending["reason"]
    is_cancelled = ending["status"] == BatchStatus.CANCELLED.value
    if is_cancelled:
        failure = Failure(FailureClass.CANCELLED, f"with its batch {batch_id}, {reason}")
    else:
        failure = Failure(FailureClass.TIMEOUT, f"its batch {batch_id} has expired: {reason}")
    facts = {"ids": [row["job_id"] for row in members], "failure_class": failure.kind.value}
    event = EventName.JOB_CANCELLED if is_cancelled else EventName.JOB_FAILED
    session.run("note_members_ended", **facts, event=event.value, message=failure.message)
    session.run("end_members", **facts, error_trace=failure.trace(), needs_regeneration=0 if is_cancelled else 1)
    session.run("unlist_ending_members", ids=facts["ids"])
