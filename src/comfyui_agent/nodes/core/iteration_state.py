"""The batches of this ComfyUI, from the prompt that makes one to its end. Runs on Python 3.9."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.domain.prompts import mint_prompt_id, natural_order
from comfyui_agent.nodes.core.batch_state import (
    LOG,
    BatchState,
    GridOptions,
    ImageFile,
    NoGrid,
    files_in,
    plain_metadata,
)
from comfyui_agent.nodes.core.feeder import Feeder, Feeding
from comfyui_agent.nodes.core.member_endings import Cancellation, cancel, record_endings
from comfyui_agent.nodes.core.prompt_rewriting import Plan, plan_of
from comfyui_agent.nodes.host import ComfyUI, MissingPiece, one_line

EXPIRY_SECONDS = 3600.0
MOST_ENDED = 50
"""So many ended batches can be looked up, for EXPIRY_SECONDS."""

_instance: IterationStateManager | None = None
_instance_lock = threading.Lock()


class IterationStateManager:
    """Every method may be called from any thread. `handle_prompt` and the reports of nodes never raise."""

    def __init__(self, host: ComfyUI | None = None, now: Callable[[], float] = time.time) -> None:
        self.host = host or ComfyUI()
        self.now = now
        self._lock = threading.RLock()
        self._active_batches: dict[str, BatchState] = {}
        self._ended: OrderedDict[str, BatchState] = OrderedDict()
        self._notifying = threading.Lock()
        self._feeder = Feeder(self, self.host)

    @classmethod
    def instance(cls) -> IterationStateManager:
        global _instance
        if _instance is None:
            with _instance_lock:
                if _instance is None:
                    _instance = cls()
        return _instance

    def handle_prompt(self, json_data: Any) -> Any:
        """ComfyUI's hook. A request with an iterator gets the first combination; another thread queues the others."""
        client_id = json_data.get("client_id") if isinstance(json_data, dict) else None

        def warn(message: str) -> None:
            self._warn(message, client_id)

        try:
            self._cleanup_expired()
            plan = plan_of(json_data, self.host.declares, self.host.input_folder, warn)
            if plan is not None:
                self._begin(json_data, plan)
        except MissingPiece as piece:
            warn(f"no batch is made, the prompt runs once, as it is: {piece}")
        except Exception:  # noqa: BLE001 - the prompt must run
            LOG.exception("The prompt runs once, as it is: its iterator cannot be followed")
        return json_data

    def _begin(self, json_data: dict[str, Any], plan: Plan) -> None:
        """Start a batch. An error leaves the request unchanged."""
        number = float(json_data["number"]) if "number" in json_data else self.host.next_number()
        if json_data.get("front") and "number" not in json_data:
            number = -number
        self.host.check()
        request = deepcopy(json_data)
        combinations = plan.combinations
        batch_id = mint_batch_id(plan.name, "batch")
        batch = BatchState(batch_id, len(combinations), combinations, plan.name, combinations.mode.value)
        batch.prompt_ids = [mint_prompt_id() for _ in range(batch.total)]
        if json_data.get("prompt_id"):
            batch.prompt_ids[0] = str(json_data["prompt_id"])
        batch.grid_options, batch.sources, batch.reporters = dict(plan.grid_options), dict(plan.sources), plan.reporters
        batch.client_id = json_data.get("client_id")
        batch.created_at = self.now()
        batch.metadata = {"prompt": request["prompt"]}
        with suppress(KeyError, TypeError, AttributeError):  # a script may send no workflow
            batch.metadata = {**batch.metadata, **request["extra_data"]["extra_pnginfo"]}
        feeding = Feeding(batch, plan, request, number)
        feeding.member(0)
        with self._lock:
            self._active_batches[batch.batch_id] = batch
        try:
            self._feeder.begin(feeding)
        except RuntimeError:  # no thread can be started
            self.cleanup_batch(batch.batch_id)
            raise
        plan.write(json_data, 0, batch.batch_id)
        json_data["prompt_id"] = batch.prompt_ids[0]
        LOG.info("Batch %s: %d members", batch.batch_id, batch.total)

    def register_result(self, batch_id: str, index: int, images: Any, metadata: Any) -> bool:
        """Record the files of a member. True once in a batch: for the last member that was missing. The same index
        again counts once, and its new files are added."""
        files = files_in(images)
        with self._lock:
            batch = self._open(batch_id, index)
            if batch is None or index in batch.failed:
                return False
            if index in batch.results:
                known = batch.results[index]["images"]
                known += [image for image in files if image not in known]
                return False
            batch.results[index] = {"images": files, "metadata": plain_metadata(metadata)}
            batch.completed_count += 1
            batch.last_sign_at = self.now()
            LOG.info("Batch %s: %d of %d done", batch_id, batch.completed_count, batch.total)
            return batch.is_whole

    def report(self, batch_id: str, index: int, node_id: str, images: Any, metadata: Any) -> bool:
        """A node has saved pictures of a member. The result is registered when all such nodes have reported."""
        with self._lock:
            batch = self._open(batch_id, index)
            if batch is None:
                return False
            reported = batch.pictures.setdefault(index, {})
            reported[node_id] = [*reported.get(node_id, ()), *files_in(images)]
            files = [image for each in natural_order(reported) for image in reported[each]]
            if batch.reporters - set(reported) or not files:
                return False
            return self.register_result(batch_id, index, files, metadata)

    def register_failure(self, batch_id: str, index: int, reason: str) -> bool:
        """Record that a member has no result. True once in a batch: for the last member that was missing."""
        with self._lock:
            batch = self._open(batch_id, index)
            if batch is None or index in batch.failed or index in batch.results:
                return False
            batch.failed[index] = one_line(reason)
            batch.last_sign_at = self.now()
            LOG.warning("Batch %s: member %d has no result: %s", batch_id, index, batch.failed[index])
            return batch.is_whole

    def _open(self, batch_id: str, index: int) -> BatchState | None:
        batch = self._active_batches.get(batch_id)
        is_open = batch is not None and not batch.cancelled and isinstance(index, int) and 0 <= index < batch.total
        return batch if is_open else None

    def is_active(self, batch_id: str) -> bool:
        with self._lock:
            return batch_id in self._active_batches

    def find(self, batch_id: str) -> BatchState | None:
        """A batch that is under way or ended not long ago."""
        with self._lock:
            return self._active_batches.get(batch_id) or self._ended.get(batch_id)

    def is_member(self, batch_id: str, index: int, prompt_id: str | None) -> bool:
        """Whether a prompt is this member. A prompt that was loaded from a file may have old marks."""
        with self._lock:
            batch = self.find(batch_id)
            ids = batch.prompt_ids if batch is not None else []
            return 0 <= index < len(ids) and prompt_id in (None, ids[index])

    def shows_its_own(self, batch_id: str, node_id: str) -> bool:
        """Whether a grid shows pictures that no other node saves."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            return batch is not None and batch.sources.get(node_id) == node_id

    def grid_for(self, batch_id: str, node_id: str, options: GridOptions) -> Sequence[ImageFile] | None:
        """Make the grid of a node if every member has ended; None if not, or if it was made before."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            if batch is None or node_id not in batch.grid_options:
                return None
            batch.grid_options[node_id] = options
        record_endings(batch, self.host, self)
        return self.make_grid(batch_id, node_id)

    def make_grid(self, batch_id: str, node_id: str) -> Sequence[ImageFile] | None:
        """Make the grid of a batch whose members have ended. It is tried once."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            if batch is None or batch.cancelled or not batch.is_whole or node_id in batch.claimed:
                return None
            batch.claimed.add(node_id)
        images: Sequence[ImageFile] = ()
        try:
            from comfyui_agent.nodes.core.batch_grid import save_grid

            images = save_grid(batch, node_id, self.host)
        except Exception as error:  # noqa: BLE001 - the batch ends without its grid
            LOG.exception("Batch %s: its grid cannot be made", batch_id)
            why = str(error) if isinstance(error, NoGrid) else f"{type(error).__name__}, see ComfyUI's log"
            batch.reason = one_line(f"the grid could not be made: {why}")
        with self._lock:
            batch.grids[node_id] = images
        return images

    def end_if_over(self, batch_id: str) -> None:
        """End a batch whose members have ended and whose grids are made."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            is_over = batch is not None and batch.is_whole and set(batch.grid_options) <= set(batch.grids)
        if is_over:
            self.end(batch_id, "complete")

    def end(self, batch_id: str, state: str, reason: str = "") -> None:
        """End a batch. A batch that did not complete has a reason."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            if batch is None:
                return
            batch.ended_as = state
            batch.cancelled = batch.cancelled or state == "cancelled"
            batch.reason = reason or batch.reason
            batch.running = None
            self.cleanup_batch(batch_id)
        if reason:
            self._warn(f"batch {batch_id} is {state}: {reason}", batch.client_id)
        LOG.info("Batch %s is %s: %d done, %d failed", batch_id, batch.state, batch.completed_count, len(batch.failed))
        self.notify(batch)

    def cleanup_batch(self, batch_id: str) -> None:
        """Close a batch. It can be looked up for a while and takes no more results."""
        with self._lock:
            batch = self._active_batches.pop(batch_id, None)
            if batch is None:
                return
            batch.ended_as = batch.ended_as or ("complete" if batch.is_whole else "cancelled")
            batch.last_sign_at = self.now()
            batch.metadata, batch.pictures = {}, {}
            self._ended[batch_id] = batch
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    def cancel_batch(self, batch_id: str) -> Cancellation | None:
        """Delete the members that wait and interrupt the one that runs; None if there is no such batch.

        Takes some seconds if ComfyUI does not stop at once.
        """
        batch = self.find(batch_id)
        if batch is None:
            return None
        if batch.ended_as:
            return Cancellation(batch_id, batch.state, message=f"the batch is {batch.state} already")
        if batch.is_whole:
            self.end_if_over(batch_id)
            return Cancellation(batch_id, batch.state, message="all members have ended: there is nothing to stop")
        done = cancel(batch, self.host)
        if done.not_stopped:
            batch.reason = f"{len(done.not_stopped)} could not be stopped: {done.not_stopped[0]['reason']}"
        self.end(batch_id, "cancelled")
        return done

    def summaries(self) -> list[dict[str, Any]]:
        with self._lock:
            known = [*self._active_batches.values(), *self._ended.values()]
            return sorted((batch.summary() for batch in known), key=lambda each: each["created_at"], reverse=True)

    def describe(self, batch_id: str) -> dict[str, Any] | None:
        with self._lock:
            batch = self.find(batch_id)
            seen = None if batch is None else batch.snapshot()
        return None if seen is None else seen.as_json()

    def notify(self, batch: BatchState) -> None:
        """Send the summary of a batch to open pages if it has changed."""
        with self._notifying:  # keeps the order
            with self._lock:
                summary = batch.summary()
                if batch.notified == summary:
                    return
                batch.notified = summary
            self.host.send("e3.batch", summary)

    def _warn(self, message: str, client_id: Any) -> None:
        LOG.error("%s", message)
        self.host.send("e3.notice", {"message": message}, client_id if isinstance(client_id, str) else None)

    def _cleanup_expired(self) -> None:
        oldest = self.now() - EXPIRY_SECONDS
        with self._lock:
            expired = [
                batch_id
                for batch_id, batch in self._active_batches.items()
                if max(batch.created_at, batch.last_sign_at) < oldest
            ]
            for batch_id in [each for each, batch in self._ended.items() if batch.last_sign_at < oldest]:
                del self._ended[batch_id]
        for batch_id in expired:
            self.end(batch_id, "expired", f"nothing has happened for {EXPIRY_SECONDS:.0f} seconds")
