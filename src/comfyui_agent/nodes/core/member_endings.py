"""Seeing how the members of a batch end, whether or not their nodes say so. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from comfyui_agent.nodes.core.batch_state import BatchState, Image
from comfyui_agent.nodes.host import ComfyUI, Ending, MissingPiece, Standing

REMOVED = "taken out of the queue before it ran"
GONE = "it ran, and its history was cleared before it could be seen how it ended"
NO_PICTURE = "it ended without a picture"


class Batches(Protocol):
    """What is told: see iteration_state."""

    def batch_of(self, prompt_id: str) -> tuple[str, int] | None: ...
    def is_active(self, batch_id: str) -> bool: ...
    def register_result(self, batch_id: str, index: int, images: Any, metadata: Any) -> bool: ...
    def register_failure(self, batch_id: str, index: int, reason: str) -> bool: ...
    def make_grid(self, batch_id: str, node_id: str) -> Sequence[Image] | None: ...
    def learn_first(self, batch: BatchState, prompt_id: str) -> None: ...
    def end(self, batch_id: str, state: str, reason: str = "") -> None: ...
    def end_if_over(self, batch_id: str) -> None: ...
    def tell(self, batch: BatchState) -> None: ...
    def now(self) -> float: ...


def look(batch: BatchState, host: ComfyUI, batches: Batches) -> Standing:
    """See which members have ended without a word, and say so; the queue as it was seen. Any thread may."""
    indices = batch.unseen_indices  # before the queue is looked at: one that is queued after that is not missed
    standing = host.standing()
    if standing is None:
        return Standing()
    running = None
    for index in indices:
        prompt_id = batch.prompt_ids[index]
        if prompt_id in standing.running:
            running = index
            batch.seen_running.add(index)
        elif prompt_id not in standing.queued:
            try:
                ending = host.ending(prompt_id)
            except MissingPiece:
                continue
            _judge(batch, index, ending, batches)
            batch.seen_ended.add(index)
    batch.running = running
    if standing.running and not batch.is_whole:
        batch.last_sign_at = batches.now()
    return standing


def _judge(batch: BatchState, index: int, ending: Ending | None, batches: Batches) -> None:
    """What the end of a member's prompt means for it."""
    if index in batch.results:
        if ending is not None and ending.problem:  # something else than its pictures went wrong
            batch.remarks[index] = ending.problem
    elif ending is None and (index in batch.seen_running or index in batch.pictures):
        batches.register_failure(batch.batch_id, index, GONE)
    elif ending is None:
        batch.removed.add(index)
        batches.register_failure(batch.batch_id, index, REMOVED)
    elif ending.problem or batch.reporters or not ending.images:
        batches.register_failure(batch.batch_id, index, ending.problem or NO_PICTURE)
    else:
        batches.register_result(batch.batch_id, index, ending.images, {})
