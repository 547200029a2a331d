"""The thread that puts members of batches into ComfyUI's queue and follows them to their end. Runs on Python 3.9."""

from __future__ import annotations

import json
import threading
import time
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.nodes.core.batch_state import LOG, BatchState
from comfyui_agent.nodes.core.member_endings import REMOVED, record_endings
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, Plan
from comfyui_agent.nodes.host import ComfyUI, PromptCheck, QueueSnapshot

if TYPE_CHECKING:
    from comfyui_agent.nodes.core.iteration_state import IterationStateManager

TICK_SECONDS = 0.25
SOON_SECONDS = 0.002
MOST_WAITING, LEAST_WAITING = 100, 8
MOST_WAITING_LETTERS = 5_000_000
"""How much of a batch waits in ComfyUI's queue: open pages read all of it, often."""
TAKEN_SECONDS = 30.0
"""After this time a first member that is not in the queue never comes."""
REFUSED_SECONDS = 1.0
"""After this time a first member that fails the check and is not in the queue was refused."""
MOST_ERRORS = 20
"""So many errors in a row end a batch."""


@dataclass
class Feeding:
    batch: BatchState
    plan: Plan
    request: dict[str, Any]
    number: float
    begun: float = field(default_factory=time.monotonic)
    first_check: PromptCheck | None = None
    is_taken: bool = False
    has_grid_thread: bool = False
    """Whether a thread makes the grids that no member made. Other batches must not wait for them."""
    removed: set[int] = field(default_factory=set)
    """The members that were seen as removed at the last step."""
    queued: int = 0
    """How many members were queued at the last step."""
    errors: int = 0

    @property
    def pause(self) -> float:
        """Seconds until the next step. ComfyUI takes the first member within moments, or is busy."""
        if self.is_taken:
            return TICK_SECONDS
        return SOON_SECONDS if time.monotonic() < self.begun + REFUSED_SECONDS else TICK_SECONDS / 5

    @cached_property
    def most_waiting(self) -> int:
        letters = len(json.dumps(self.request, default=str))
        return max(LEAST_WAITING, min(MOST_WAITING, MOST_WAITING_LETTERS // letters))

    def is_member(self, prompt: Any) -> bool:
        return isinstance(prompt, dict) and inputs_of(prompt, self.plan.iterator).get(BATCH) == self.batch.batch_id

    def member(self, index: int) -> dict[str, Any]:
        document = deepcopy(self.request)
        self.plan.write(document, index, self.batch.batch_id)
        return document

    def count_waiting(self, snapshot: QueueSnapshot) -> int:
        return sum(prompt_id in snapshot.queued for prompt_id in self.batch.prompt_ids[: self.batch.queued])

    def was_cleared(self, snapshot: QueueSnapshot) -> bool:
        """Whether someone has cleared the queue: most of what waited is gone."""
        batch = self.batch
        newly_removed = batch.removed - self.removed
        self.removed |= newly_removed
        queued_before, self.queued = self.queued, batch.queued
        if batch.queued >= batch.total or len(newly_removed) <= max(1, self.count_waiting(snapshot)):
            return False
        # Who removes only some members leaves one that stood behind the first of them.
        return all(index in batch.failed for index in range(min(newly_removed), queued_before))

    def missing_node(self, check: PromptCheck) -> str:
        """Why a member that ComfyUI accepts can have no result: it does not run one of our nodes. Else empty."""
        missing = (self.batch.reporters | set(self.batch.grid_options)) - set(check.outputs)
        return (check.remark or f"ComfyUI does not run node {min(missing)}") if missing else ""


class Feeder:
    """Its thread runs as long as there are batches."""

    def __init__(self, manager: IterationStateManager, host: ComfyUI) -> None:
        self._manager = manager
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
                self._feedings = [each for each in self._feedings if self._manager.is_active(each.batch.batch_id)]
                if not self._feedings:
                    self._thread = None
                    return
                feedings = list(self._feedings)
            for feeding in feedings:
                try:
                    self._step(feeding)
                    feeding.errors = 0
                except BaseException as error:  # noqa: BLE001 - the thread serves other batches, too
                    LOG.exception("Batch %s: something went wrong, which is tried again", feeding.batch.batch_id)
                    feeding.errors += 1
                    if feeding.errors >= MOST_ERRORS:
                        self._manager.end(feeding.batch.batch_id, "cancelled", f"E3 could not go on: {error}")
            self._wake.wait(min(feeding.pause for feeding in feedings))
            self._wake.clear()

    def _step(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if not feeding.is_taken and not self._find_taken(feeding):
            return
        if feeding.was_cleared(record_endings(batch, self._host, self._manager)):
            self._fail_the_rest(batch)
        self._feed(feeding)
        if batch.is_whole:
            snapshot = self._host.queue()
            is_under_way = not {*snapshot.running, *snapshot.queued}.isdisjoint(batch.prompt_ids)
            if not is_under_way and not feeding.has_grid_thread:  # a member that still runs makes the grid itself
                threading.Thread(target=self._make_grids, args=(batch,), name="e3-grid", daemon=True).start()
                feeding.has_grid_thread = True
            if not is_under_way:
                self._manager.end_if_over(batch.batch_id)
        self._manager.notify(batch)

    def _find_taken(self, feeding: Feeding) -> bool:
        """Whether ComfyUI has the first member. If it refuses that one, no other is queued."""
        batch = feeding.batch
        prompt_id = self._find_first(feeding)
        if feeding.first_check is None:
            feeding.first_check = self._check(batch.prompt_ids[0], feeding.member(0))
        check = feeding.first_check
        if prompt_id is None:
            if check.problem and time.monotonic() > feeding.begun + REFUSED_SECONDS:
                reason = f"ComfyUI refused the first combination: {check.problem}"
                self._manager.end(batch.batch_id, "cancelled", reason)
            elif time.monotonic() > feeding.begun + TAKEN_SECONDS:
                self._manager.end(batch.batch_id, "cancelled", "ComfyUI did not take the first combination")
            return False
        batch.prompt_ids[0] = prompt_id
        batch.queued = max(1, batch.queued)
        feeding.is_taken = True
        if not check.problem and feeding.missing_node(check):
            self._manager.register_failure(batch.batch_id, 0, feeding.missing_node(check))
        return True

    def _find_first(self, feeding: Feeding) -> str | None:
        """The prompt id of the first member. Some versions give it another id, so its graph decides."""
        snapshot = self._host.queue()
        for prompt_id, prompt in [*snapshot.running.items(), *snapshot.queued.items()]:
            if feeding.is_member(prompt):
                return prompt_id
        return self._host.find_ended(feeding.is_member, feeding.batch.prompt_ids[0])

    def _check(self, prompt_id: str, document: dict[str, Any]) -> PromptCheck:
        try:
            return self._host.validate(prompt_id, document["prompt"], document.get("partial_execution_targets"))
        except BaseException as error:  # noqa: BLE001 - nodes of others run in the check and may raise anything
            return PromptCheck(problem=f"ComfyUI cannot check it: {error!r}")

    def _feed(self, feeding: Feeding) -> None:
        batch = feeding.batch
        if batch.queued >= batch.total:
            feeding.request = {}
            return
        room = feeding.most_waiting - feeding.count_waiting(self._host.queue())
        for index in range(batch.queued, min(batch.total, batch.queued + room)):
            prompt_id = batch.prompt_ids[index]
            document = feeding.member(index)
            check = self._check(prompt_id, document)
            problem = check.problem or feeding.missing_node(check)
            with batch.queueing:
                if batch.cancelled or not self._manager.is_active(batch.batch_id):
                    return
                if problem:
                    self._manager.register_failure(batch.batch_id, index, problem)
                else:
                    self._host.put(feeding.number + index / batch.total, prompt_id, document, check.outputs)
                batch.queued = index + 1

    def _fail_the_rest(self, batch: BatchState) -> None:
        with batch.queueing:
            rest = range(batch.queued, batch.total)
            batch.queued = batch.total
        for index in rest:
            self._manager.register_failure(batch.batch_id, index, REMOVED)

    def _make_grids(self, batch: BatchState) -> None:
        """Make the grids that no member made, because the last one did not get that far."""
        for node_id in list(batch.grid_options):
            images = self._manager.make_grid(batch.batch_id, node_id)
            if images is not None:
                output = {"images": [dict(image) for image in images]}
                event = {"node": node_id, "display_node": node_id, "output": output, "prompt_id": batch.prompt_ids[-1]}
                self._host.send("executed", event, batch.client_id)
        self._wake.set()
