"""How the members of a batch end: seen in ComfyUI's queue and history, or cancelled. Runs on Python 3.9."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.host import ComfyUI, Ending, QueueSnapshot

if TYPE_CHECKING:
    from comfyui_agent.nodes.core.iteration_state import IterationStateManager

REMOVED = "taken out of the queue before it ran"
GONE = "it ran, and its history was cleared before it could be seen how it ended"
NO_PICTURE = "it ended without a picture"
STOP_SECONDS = 3.0
"""How long ComfyUI may take to stop what runs, and to accept a prompt that is on its way in."""
POLL_SECONDS = 0.02
STILL_RUNS = "it was told to stop and still runs; its result will not be counted"
STILL_WAITS = "it could not be taken out of the queue; its result will not be counted"
STILL_CHECKED = "ComfyUI is still checking it; it may run, and its result will not be counted"


def record_endings(batch: BatchState, host: ComfyUI, manager: IterationStateManager) -> QueueSnapshot:
    """Register the members that have ended; returns the queue as it was seen. Any thread may call it."""
    # Before the queue is read: a member that is queued after that is not missed.
    unseen = [index for index in range(batch.queued) if index not in batch.seen_ended and index not in batch.failed]
    snapshot = host.queue()
    running = None
    for index in unseen:
        prompt_id = batch.prompt_ids[index]
        if prompt_id in snapshot.running:
            running = index
            batch.seen_running.add(index)
        elif prompt_id not in snapshot.queued:
            _record(batch, index, host.ending(prompt_id), manager)
            batch.seen_ended.add(index)
    batch.running = running
    if snapshot.running and not batch.is_whole:
        batch.last_sign_at = manager.now()
    return snapshot


def _record(batch: BatchState, index: int, ending: Ending | None, manager: IterationStateManager) -> None:
    if index in batch.results:
        if ending is not None and ending.problem:  # the pictures are there, and something else failed
            batch.remarks[index] = ending.problem
    elif ending is None and (index in batch.seen_running or index in batch.pictures):
        manager.register_failure(batch.batch_id, index, GONE)
    elif ending is None:
        batch.removed.add(index)
        manager.register_failure(batch.batch_id, index, REMOVED)
    elif ending.problem or batch.reporters or not ending.images:
        manager.register_failure(batch.batch_id, index, ending.problem or NO_PICTURE)
    else:
        manager.register_result(batch.batch_id, index, ending.images, {})


@dataclass
class Cancellation:
    """What became of the members that had not ended, by prompt id."""

    batch_id: str
    state: str
    deleted: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    not_stopped: list[dict[str, str]] = field(default_factory=list)
    message: str = ""


def cancel(batch: BatchState, host: ComfyUI) -> Cancellation:
    """Delete what waits, interrupt what runs, and wait until both are gone."""
    with batch.queueing:
        batch.cancelled = True
    done = Cancellation(batch.batch_id, "cancelled")
    is_on_its_way = batch.queued == 0
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        ended = {*batch.results, *batch.failed}
        members = {batch.prompt_ids[index] for index in range(batch.queued) if index not in ended}
        members = members or set(batch.prompt_ids[:1])
        done.deleted += [each for each in members & set(host.queue().queued) if host.delete(each)]
        # Again at each poll: ComfyUI drops an interrupt that comes just before a prompt begins.
        done.interrupted += [each for each in host.interrupt(members) if each not in done.interrupted]
        snapshot = host.queue()
        has_come = bool(done.deleted or done.interrupted or batch.ended_as) or not is_on_its_way
        is_gone = has_come and not members & {*snapshot.running, *snapshot.queued}
        if is_gone or time.monotonic() > deadline:
            break
        time.sleep(POLL_SECONDS)
    left = {prompt_id: STILL_RUNS for prompt_id in snapshot.running if prompt_id in members}
    left |= {prompt_id: STILL_WAITS for prompt_id in snapshot.queued if prompt_id in members}
    if not has_come:
        left = {batch.prompt_ids[0]: STILL_CHECKED}
    done.not_stopped = [{"prompt_id": prompt_id, "reason": reason} for prompt_id, reason in left.items()]
    done.interrupted = [prompt_id for prompt_id in done.interrupted if prompt_id not in left]
    missing = batch.total - len(batch.results) - len(batch.failed)
    done.message = f"{missing} of {batch.total} will not be made; {batch.completed_count} are there"
    return done
