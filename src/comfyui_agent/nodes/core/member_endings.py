"""Seeing from ComfyUI's queue and history how the members of a batch end. Runs on Python 3.9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.host import ComfyUI, Ending, QueueSnapshot

if TYPE_CHECKING:
    from comfyui_agent.nodes.core.iteration_state import IterationStateManager

REMOVED = "taken out of the queue before it ran"
GONE = "it ran, and its history was cleared before it could be seen how it ended"
NO_PICTURE = "it ended without a picture"


def record_endings(batch: BatchState, host: ComfyUI, manager: IterationStateManager) -> QueueSnapshot:
    """Register the members that have ended; returns the queue as it was seen. Any thread may call it."""
    indices = batch.unseen_indices  # before the queue is read: a member that is queued after that is not missed
    snapshot = host.queue()
    running = None
    for index in indices:
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
