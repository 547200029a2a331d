"""The thread that puts the members of batches into ComfyUI's queue, and sees how they end. Runs on Python 3.9."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.nodes.core.batch_state import BatchState, Image
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, Plan
from comfyui_agent.nodes.host import ComfyUI, MissingPiece, Standing, Verdict

LOG = logging.getLogger("e3_iterator")
TICK_SECONDS = 0.25
MOST_WAITING = 250
"""No more members of a batch wait in ComfyUI's queue: every page that is open reads all of it, again and again."""
TAKEN_SECONDS = 30.0
"""By then ComfyUI has taken the first of a batch, or never will."""
MOST_TROUBLES = 20
"""A batch that cannot be followed so many times in a row is given up."""
REMOVED = "taken out of the queue before it ran"


class Batches(Protocol):
    """What the thread tells: see iteration_state."""

    def is_active(self, batch_id: str) -> bool: ...
    def register_result(self, batch_id: str, index: int, images: Any, metadata: Any) -> bool: ...
    def register_failure(self, batch_id: str, index: int, reason: str) -> bool: ...
    def make_grid(self, batch_id: str, node_id: str) -> Sequence[Image] | None: ...
    def learn_first(self, batch: BatchState, prompt_id: str) -> None: ...
    def end(self, batch_id: str, state: str, reason: str = "") -> None: ...
    def end_if_over(self, batch_id: str) -> None: ...
    def tell(self, batch: BatchState) -> None: ...
    def now(self) -> float: ...


@dataclass
class Feeding:
    """A batch on its way into the queue. The request is kept as a text: each copy of it is a whole one."""

    batch: BatchState
    plan: Plan
    request: str
    number: float
    begun: float = field(default_factory=time.monotonic)
    is_checked: bool = False
    is_taken: bool = False
    troubles: int = 0

    def is_ours(self, prompt: Any) -> bool:
        """Whether a graph is one of a member: as long as none but the first is queued, the first."""
        return isinstance(prompt, dict) and inputs_of(prompt, self.plan.iterator).get(BATCH) == self.batch.batch_id

    def member(self, index: int) -> dict[str, Any]:
        """The request of a member."""
        document: dict[str, Any] = json.loads(self.request)
        self.plan.write(document, index, self.batch.batch_id)
        return document


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
            if self._thread is None:
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
                except Exception as error:
                    LOG.exception("Batch %s: something went wrong, which is tried again", feeding.batch.batch_id)
                    feeding.troubles += 1
                    if feeding.troubles >= MOST_TROUBLES:
                        self._batches.end(feeding.batch.batch_id, "cancelled", f"E3 could not go on: {error}")
            is_waiting = any(not feeding.is_taken for feeding in feedings)
            self._wake.wait(0.002 if is_waiting else TICK_SECONDS)
            self._wake.clear()

    def _step(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if not feeding.is_taken and not self._see_first(feeding):
            return
        self._feed(feeding)
        standing = look(batch, self._host, self._batches)
        is_running = any(prompt_id in standing.running for prompt_id in batch.prompt_ids)
        if batch.is_whole and not is_running:  # else the grid is made where it runs
            for node_id in batch.wishes:
                self._show_grid(batch, node_id)
            self._batches.end_if_over(batch.batch_id)
        self._batches.tell(batch)

    def _see_first(self, feeding: Feeding) -> bool:
        """Whether ComfyUI has taken the first. If it refuses that one, none is queued: whoever asked was told no."""
        batch = feeding.batch
        prompt_id = self._find_first(feeding)
        if prompt_id is None and time.monotonic() < feeding.begun + TAKEN_SECONDS:
            problem = "" if feeding.is_checked else self._verdict(batch.prompt_ids[0], feeding.member(0)).problem
            feeding.is_checked = True
            if problem:
                self._batches.end(batch.batch_id, "cancelled", f"ComfyUI refused the first combination: {problem}")
            return False
        if prompt_id is None:
            self._batches.end(batch.batch_id, "cancelled", "ComfyUI did not take the first combination")
            return False
        self._batches.learn_first(batch, prompt_id)
        batch.queued = max(1, batch.queued)
        feeding.is_taken = True
        return True

    def _find_first(self, feeding: Feeding) -> str | None:
        """By its id; by its mark where a version gives an id of its own."""
        batch = feeding.batch
        standing = self._host.standing()
        if standing is None:
            return batch.prompt_ids[0]
        for prompt_id, prompt in [*standing.running.items(), *standing.queued.items()]:
            if prompt_id == batch.prompt_ids[0] or feeding.is_ours(prompt):
                return prompt_id
        with suppress(MissingPiece):
            if self._host.ending(batch.prompt_ids[0]) is not None:
                return batch.prompt_ids[0]
            return self._host.find_ended(feeding.is_ours)
        return batch.prompt_ids[0] if 0 in batch.results else None

    def _verdict(self, prompt_id: str, document: dict[str, Any]) -> Verdict:
        try:
            return self._host.validate(prompt_id, document["prompt"], document.get("partial_execution_targets"))
        except Exception as error:  # noqa: BLE001 - nodes of others are asked: whatever they raise, it is no yes
            return Verdict(problem=f"ComfyUI cannot check it: {error!r}")

    def _feed(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if batch.queued >= batch.total:
            feeding.request = ""
            return
        standing = self._host.standing()
        room = batch.total
        if standing is not None:
            room = MOST_WAITING - sum(prompt_id in standing.queued for prompt_id in batch.prompt_ids[: batch.queued])
        for index in range(batch.queued, min(batch.total, batch.queued + room)):
            prompt_id = batch.prompt_ids[index]
            document = feeding.member(index)
            verdict = self._verdict(prompt_id, document)
            with batch.queueing:
                if batch.cancelled or not self._batches.is_active(batch.batch_id):
                    return
                if not verdict.problem:
                    self._host.put(feeding.number + index / batch.total, prompt_id, document, verdict.outputs)
                batch.queued = index + 1
            if verdict.problem:
                self._batches.register_failure(batch.batch_id, index, verdict.problem)

    def _show_grid(self, batch: BatchState, node_id: str) -> None:
        """Make the grid that no member could: the last one did not get that far."""
        images = self._batches.make_grid(batch.batch_id, node_id)
        if images is not None:
            output = {"images": [dict(image) for image in images]}
            said = {"node": node_id, "display_node": node_id, "output": output, "prompt_id": batch.prompt_ids[-1]}
            self._host.send("executed", said, batch.client_id)


def look(batch: BatchState, host: ComfyUI, batches: Batches) -> Standing:
    """See which members have ended without a word, and say so. Any thread may."""
    open_indices = batch.open_indices  # before the queue is looked at: one that is queued after that is not missed
    standing = host.standing()
    if standing is None:
        return Standing()
    running = None
    for index in open_indices:
        prompt_id = batch.prompt_ids[index]
        if prompt_id in standing.running:
            running = index
        elif prompt_id not in standing.queued:
            try:
                ending = host.ending(prompt_id)
            except MissingPiece:
                continue
            if ending is None:
                batches.register_failure(batch.batch_id, index, REMOVED)
            elif ending.problem:
                batches.register_failure(batch.batch_id, index, ending.problem)
            else:
                batches.register_result(batch.batch_id, index, ending.images, {})
    batch.running = running
    if standing.running and (open_indices or batch.queued < batch.total):
        batch.last_sign_at = batches.now()
    return standing
