"""The thread that puts members of batches into ComfyUI's queue, and sees to their end. Runs on Python 3.9."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.core.copies import copy_of
from comfyui_agent.nodes.core.member_endings import REMOVED, Batches, look
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, Plan
from comfyui_agent.nodes.host import LOG, ComfyUI, MissingPiece, PromptCheck, Standing

TICK_SECONDS = 0.25
SOON_SECONDS = 0.002
MOST_WAITING, LEAST_WAITING = 100, 8
MOST_WAITING_LETTERS = 5_000_000
"""So many members of a batch wait in ComfyUI's queue, fewer if they are large: open pages read all of it, often."""
TAKEN_SECONDS = 30.0
"""By then ComfyUI has taken the first of a batch, or never will."""
REFUSED_SECONDS = 1.0
"""If it has not taken it by then and its check says no, it has said no."""
MOST_TROUBLES = 20
"""A batch that cannot be followed so many times in a row is given up."""


@dataclass
class Feeding:
    """A batch on its way into the queue."""

    batch: BatchState
    plan: Plan
    request: dict[str, Any]
    number: float
    begun: float = field(default_factory=time.monotonic)
    verdict: PromptCheck | None = None
    """What ComfyUI's check says of the first, as soon as it was asked."""
    is_taken: bool = False
    is_drawn: bool = False
    """Whether grids that no member made are made now, by a thread of their own: other batches are not to wait."""
    removed: set[int] = field(default_factory=set)
    known: int = 0
    """Which members had been taken out of the queue, and how many put into it, at the last look."""
    troubles: int = 0
    most_waiting: int = 0

    @property
    def pause(self) -> float:
        """How long nobody need look again: ComfyUI takes the first within moments, or is in no hurry."""
        if self.is_taken:
            return TICK_SECONDS
        return SOON_SECONDS if time.monotonic() < self.begun + REFUSED_SECONDS else TICK_SECONDS / 5

    def is_ours(self, prompt: Any) -> bool:
        """Whether a graph is one of a member: as long as none but the first is queued, the first."""
        return isinstance(prompt, dict) and inputs_of(prompt, self.plan.iterator).get(BATCH) == self.batch.batch_id

    def member(self, index: int) -> dict[str, Any]:
        """The request of a member, a copy of its own."""
        document: dict[str, Any] = copy_of(self.request)
        self.plan.write(document, index, self.batch.batch_id)
        return document

    def was_cleared(self, standing: Standing) -> bool:
        """Whether someone has cleared the queue: most of what waited is gone. What was to come is not wanted then."""
        batch = self.batch
        waiting = sum(prompt_id in standing.queued for prompt_id in batch.prompt_ids[: batch.queued])
        taken_out = batch.removed - self.removed
        self.removed |= taken_out
        known, self.known = self.known, batch.queued
        if batch.queued >= batch.total or len(taken_out) <= max(1, waiting):
            return False
        # Whoever takes out some, and not all, leaves one that stood behind the first of them.
        return all(index in batch.failed for index in range(min(taken_out), known))

    def lacks(self, verdict: PromptCheck) -> str:
        """Why a member that ComfyUI takes has no result all the same: it leaves out a node of ours. Else nothing."""
        missing = (self.batch.reporters | set(self.batch.wishes)) - set(verdict.outputs)
        return (verdict.remark or f"ComfyUI does not run node {min(missing)}") if missing else ""


class Feeder:
    """Runs as long as there are batches."""

    def __init__(self, batches: Batches, host: ComfyUI) -> None:
        self._batches = batches
        self._host = host
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._feedings: list[Feeding] = []
        self._thread: threading.Thread | None = None

    def begin(self, feeding: Feeding) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="e3-iterator", daemon=True)
                thread.start()
                self._thread = thread
            self._feedings.append(feeding)
        self._wake.set()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._feedings = [each for each in self._feedings if self._batches.is_active(each.batch.batch_id)]
                if not self._feedings:
                    self._thread = None
                    return
                feedings = list(self._feedings)
            for feeding in feedings:
                try:
                    self._step(feeding)
                    feeding.troubles = 0
                except BaseException as error:  # noqa: BLE001 - the thread is there for other batches, too
                    LOG.exception("Batch %s: something went wrong, which is tried again", feeding.batch.batch_id)
                    feeding.troubles += 1
                    if feeding.troubles >= MOST_TROUBLES:
                        self._batches.end(feeding.batch.batch_id, "cancelled", f"E3 could not go on: {error}")
            self._wake.wait(min(feeding.pause for feeding in feedings))
            self._wake.clear()

    def _step(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if not feeding.is_taken and not self._see_first(feeding):
            return
        if feeding.was_cleared(look(batch, self._host, self._batches)):
            self._give_up_the_rest(batch)
        self._feed(feeding)
        if batch.is_whole and not self._is_under_way(batch):  # else the grid is made where it runs
            if not feeding.is_drawn:
                threading.Thread(target=self._show_grids, args=(batch,), name="e3-grid", daemon=True).start()
                feeding.is_drawn = True
            self._batches.end_if_over(batch.batch_id)
        self._batches.tell(batch)

    def _is_under_way(self, batch: BatchState) -> bool:
        """Whether a prompt of the batch runs or waits, at this moment."""
        standing = self._host.standing() or Standing()
        owners = [self._batches.batch_of(prompt_id) for prompt_id in (*standing.running, *standing.queued)]
        return any(owner is not None and owner[0] == batch.batch_id for owner in owners)

    def _see_first(self, feeding: Feeding) -> bool:
        """Whether ComfyUI has taken the first. If it refuses that one, none is queued: whoever asked was told no."""
        batch = feeding.batch
        prompt_id = self._find_first(feeding)
        if feeding.verdict is None:
            feeding.verdict = self._verdict(batch.prompt_ids[0], feeding.member(0))
        if prompt_id is None:
            if feeding.verdict.problem and time.monotonic() > feeding.begun + REFUSED_SECONDS:
                reason = f"ComfyUI refused the first combination: {feeding.verdict.problem}"
                self._batches.end(batch.batch_id, "cancelled", reason)
            elif time.monotonic() > feeding.begun + TAKEN_SECONDS:
                self._batches.end(batch.batch_id, "cancelled", "ComfyUI did not take the first combination")
            return False
        self._batches.learn_first(batch, prompt_id)
        batch.queued = max(1, batch.queued)
        feeding.is_taken = True
        if not feeding.verdict.problem and feeding.lacks(feeding.verdict):
            self._batches.register_failure(batch.batch_id, 0, feeding.lacks(feeding.verdict))
        return True

    def _find_first(self, feeding: Feeding) -> str | None:
        """By its mark: some versions give it an id of their own, and others may have used its id before."""
        batch = feeding.batch
        standing = self._host.standing()
        if standing is None:
            return batch.prompt_ids[0]
        for prompt_id, prompt in [*standing.running.items(), *standing.queued.items()]:
            if feeding.is_ours(prompt):
                return prompt_id
        try:
            return self._host.find_ended(feeding.is_ours, batch.prompt_ids[0])
        except MissingPiece:
            return batch.prompt_ids[0] if 0 in batch.results else None

    def _verdict(self, prompt_id: str, document: dict[str, Any]) -> PromptCheck:
        try:
            return self._host.validate(prompt_id, document["prompt"], document.get("partial_execution_targets"))
        except BaseException as error:  # noqa: BLE001 - nodes of others are asked: whatever they raise, it is no yes
            return PromptCheck(problem=f"ComfyUI cannot check it: {error!r}")

    def _feed(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if batch.queued >= batch.total:
            feeding.request = {}
            return
        standing = self._host.standing()
        room = batch.total
        if standing is not None:
            waiting = sum(prompt_id in standing.queued for prompt_id in batch.prompt_ids[: batch.queued])
            room = self._most_waiting(feeding) - waiting
        for index in range(batch.queued, min(batch.total, batch.queued + room)):
            prompt_id = batch.prompt_ids[index]
            document = feeding.member(index)
            verdict = self._verdict(prompt_id, document)
            problem = verdict.problem or feeding.lacks(verdict)
            with batch.queueing:
                if batch.cancelled or not self._batches.is_active(batch.batch_id):
                    return
                if problem:
                    self._batches.register_failure(batch.batch_id, index, problem)
                else:
                    self._host.put(feeding.number + index / batch.total, prompt_id, document, verdict.outputs)
                batch.queued = index + 1

    def _most_waiting(self, feeding: Feeding) -> int:
        if not feeding.most_waiting:
            letters = len(json.dumps(feeding.request, default=str))
            feeding.most_waiting = max(LEAST_WAITING, min(MOST_WAITING, MOST_WAITING_LETTERS // letters))
        return feeding.most_waiting

    def _give_up_the_rest(self, batch: BatchState) -> None:
        with batch.queueing:
            rest = range(batch.queued, batch.total)
            batch.queued = batch.total
        for index in rest:
            self._batches.register_failure(batch.batch_id, index, REMOVED)

    def _show_grids(self, batch: BatchState) -> None:
        """Make the grids that no member could: the last one did not get that far."""
        for node_id in list(batch.wishes):
            images = self._batches.make_grid(batch.batch_id, node_id)
            if images is not None:
                output = {"images": [dict(image) for image in images]}
                said = {"node": node_id, "display_node": node_id, "output": output, "prompt_id": batch.prompt_ids[-1]}
                self._host.send("executed", said, batch.client_id)
        self._wake.set()
