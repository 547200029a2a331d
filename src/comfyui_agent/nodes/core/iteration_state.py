"""The one place that knows which prompts of this ComfyUI belong together, from first to last. Runs on Python 3.9."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comfyui_agent.domain.batches import mint_batch_id
from comfyui_agent.domain.prompts import mint_prompt_ids, natural_order
from comfyui_agent.nodes.core.batch_grid import NoGrid
from comfyui_agent.nodes.core.batch_state import BatchState, GridWish, Image
from comfyui_agent.nodes.core.cancellation import Cancellation, cancel
from comfyui_agent.nodes.core.copies import copy_of
from comfyui_agent.nodes.core.feeder import Feeder, Feeding
from comfyui_agent.nodes.core.member_endings import look
from comfyui_agent.nodes.core.prompt_rewriting import Plan, plan_of
from comfyui_agent.nodes.host import LOG, ComfyUI, MissingPiece, one_line

__all__ = ["BatchState", "GridWish", "IterationStateManager"]

EXPIRY_SECONDS = 3600.0
MOST_ENDED = 50
"""So many batches that have ended can still be looked at, for as long as a batch lives without a result."""

_instance: IterationStateManager | None = None
_instance_lock = threading.Lock()


class IterationStateManager:
    """Safe to call from any thread; `handle_prompt` and the reports of nodes never raise."""

    def __init__(self, host: ComfyUI | None = None, now: Callable[[], float] = time.time) -> None:
        self.host = host or ComfyUI()
        self.now = now
        self._lock = threading.RLock()
        self._active_batches: dict[str, BatchState] = {}
        self._prompt_to_batch: dict[str, tuple[str, int]] = {}
        self._ended: OrderedDict[str, BatchState] = OrderedDict()
        self._telling = threading.Lock()
        self._told: dict[str, dict[str, Any]] = {}
        self._feeder = Feeder(self, self.host)

    @classmethod
    def instance(cls) -> IterationStateManager:
        """The one of this process."""
        global _instance
        if _instance is None:
            with _instance_lock:
                if _instance is None:
                    _instance = cls()
        return _instance

    def handle_prompt(self, json_data: Any) -> Any:
        """ComfyUI's hook: the request as it came or, if it has an iterator, with the first combination in it.

        The others are queued by another thread once ComfyUI has taken the first.
        """
        client_id = json_data.get("client_id") if isinstance(json_data, dict) else None

        def complain(message: str) -> None:
            self._complain(message, client_id)

        try:
            self._cleanup_expired()
            plan = plan_of(json_data, self.host.declares, self.host.input_folder, complain)
            if plan is not None:
                self._begin(json_data, plan)
        except MissingPiece as piece:
            complain(f"no batch is made, the prompt runs once, as it is: {piece}")
        except Exception:  # noqa: BLE001 - whatever it is, the prompt is to run
            LOG.exception("The prompt runs once, as it is: its iterator cannot be followed")
        return json_data

    def _begin(self, json_data: dict[str, Any], plan: Plan) -> None:
        """All that can go wrong comes before the first change."""
        number = self._number(json_data)
        self.host.check()
        request = copy_of(json_data)
        batch = BatchState(
            mint_batch_id(plan.name, "batch"), len(plan.combinations), plan.combinations, plan.name, plan.mode
        )
        given = json_data.get("prompt_id")
        batch.prompt_ids = list(mint_prompt_ids(batch.total))
        if given:
            batch.prompt_ids[0] = str(given)
        batch.wishes, batch.sources, batch.reporters = dict(plan.wishes), dict(plan.sources), plan.reporters
        batch.client_id = json_data.get("client_id")
        batch.created_at = self.now()
        batch.texts = {"prompt": request["prompt"], **_pnginfo(request)}
        feeding = Feeding(batch, plan, request, number)
        feeding.member(0)
        with self._lock:
            self._active_batches[batch.batch_id] = batch
            for index, prompt_id in enumerate(batch.prompt_ids):
                self._prompt_to_batch[prompt_id] = (batch.batch_id, index)
        try:
            self._feeder.begin(feeding)
        except RuntimeError:  # no thread can be started
            self.cleanup_batch(batch.batch_id)
            raise
        plan.write(json_data, 0, batch.batch_id)
        json_data["prompt_id"] = batch.prompt_ids[0]
        LOG.info("Batch %s: %d members", batch.batch_id, batch.total)

    def _number(self, json_data: Mapping[str, Any]) -> float:
        """The number that ComfyUI gives to the first: the others follow it, and come before whatever is queued next."""
        if "number" in json_data:
            return float(json_data["number"])
        number = self.host.next_number()
        return -number if json_data.get("front") else number

    def register_result(self, batch_id: str, index: int, images: Any, metadata: Any) -> bool:
        """A member's pictures are there, as references to files. True once in a batch: for the last that was missing.

        The same index again counts once, and what it brings is added. Nothing counts after a batch has ended.
        """
        references = _references(images)
        with self._lock:
            batch = self._open(batch_id, index)
            if batch is None or index in batch.failed:
                return False
            if index in batch.results:
                known = batch.results[index]["images"]
                known += [image for image in references if image not in known]
                return False
            batch.results[index] = {"images": references, "metadata": _plain(metadata)}
            batch.completed_count += 1
            batch.last_sign_at = self.now()
            LOG.info("Batch %s: %d of %d done", batch_id, batch.completed_count, batch.total)
            return batch.is_whole

    def report(self, batch_id: str, index: int, node_id: str, images: Any, metadata: Any) -> bool:
        """A node has saved pictures of a member. The result is registered when all that save have said so."""
        with self._lock:
            batch = self._open(batch_id, index)
            if batch is None:
                return False
            said = batch.pictures.setdefault(index, {})
            said[node_id] = [*said.get(node_id, ()), *_references(images)]
            if batch.reporters - set(said):
                return False
            every = [image for each in natural_order(said) for image in said[each]]
            if not every:
                return False
            return self.register_result(batch_id, index, every, metadata)

    def register_failure(self, batch_id: str, index: int, reason: str) -> bool:
        """A member has no result, and will not have one. True once in a batch: for the last that was missing."""
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
        is_member = isinstance(index, int) and batch is not None and 0 <= index < batch.total
        return batch if batch is not None and is_member and not batch.cancelled else None

    def learn_first(self, batch: BatchState, prompt_id: str) -> None:
        """ComfyUI runs the first member under this id, whatever it was told."""
        with self._lock:
            self._prompt_to_batch.pop(batch.prompt_ids[0], None)
            batch.prompt_ids[0] = prompt_id
            if batch.batch_id in self._active_batches:
                self._prompt_to_batch[prompt_id] = (batch.batch_id, 0)

    def is_active(self, batch_id: str) -> bool:
        with self._lock:
            return batch_id in self._active_batches

    def find(self, batch_id: str) -> BatchState | None:
        """A batch that is under way, or one that ended not long ago."""
        with self._lock:
            return self._active_batches.get(batch_id) or self._ended.get(batch_id)

    def batch_of(self, prompt_id: str) -> tuple[str, int] | None:
        """The batch that a prompt is of, and its index in it, as long as the batch has not ended."""
        with self._lock:
            return self._prompt_to_batch.get(prompt_id)

    def is_member(self, batch_id: str, index: int, prompt_id: str | None) -> bool:
        """Whether marks are those of the prompt that has them: old ones may come back out of a file."""
        with self._lock:
            batch = self.find(batch_id)
            ids = batch.prompt_ids if batch is not None else []
            return 0 <= index < len(ids) and prompt_id in (None, ids[index])

    def shows_its_own(self, batch_id: str, node_id: str) -> bool:
        """Whether a grid is connected to pictures that no other node saves."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            return batch is not None and batch.sources.get(node_id) == node_id

    def grid_for(self, batch_id: str, node_id: str, wish: GridWish) -> Sequence[Image] | None:
        """The grid for its node if this is the moment to make it: every member has ended. None before, and after."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            if batch is None or node_id not in batch.wishes:
                return None
            batch.wishes[node_id] = wish
        look(batch, self.host, self)
        return self.make_grid(batch_id, node_id)

    def make_grid(self, batch_id: str, node_id: str) -> Sequence[Image] | None:
        """Make the grid of a batch that is whole: once, whoever asks. It is not made again if it cannot be."""
        with self._lock:
            batch = self._active_batches.get(batch_id)
            if batch is None or batch.cancelled or not batch.is_whole or node_id in batch.claimed:
                return None
            batch.claimed.add(node_id)
        images: Sequence[Image] = ()
        try:
            from comfyui_agent.nodes.core.grid_files import save_grid

            images = save_grid(batch, node_id, self.host)
        except Exception as error:  # noqa: BLE001 - a batch ends without its grid rather than never
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
            if batch is None or not batch.is_whole or set(batch.wishes) - set(batch.grids):
                return
        self.end(batch_id, "complete")

    def end(self, batch_id: str, state: str, reason: str = "") -> None:
        """A batch is over; why, if it did not come to its end."""
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
            self._complain(f"batch {batch_id} is {state}: {reason}", batch.client_id)
        LOG.info("Batch %s is %s: %d done, %d failed", batch_id, batch.state, batch.completed_count, len(batch.failed))
        self.tell(batch)

    def cleanup_batch(self, batch_id: str) -> None:
        """Forget which prompts a batch has. It can be looked at for a while; results that come now are not counted."""
        with self._lock:
            batch = self._active_batches.pop(batch_id, None)
            if batch is None:
                return
            for prompt_id in [key for key, (owner, _) in self._prompt_to_batch.items() if owner == batch_id]:
                del self._prompt_to_batch[prompt_id]
            batch.ended_as = batch.ended_as or ("complete" if batch.is_whole else "cancelled")
            batch.last_sign_at = self.now()
            batch.texts, batch.pictures = {}, {}
            self._ended[batch_id] = batch
            while len(self._ended) > MOST_ENDED:
                self._told.pop(self._ended.popitem(last=False)[0], None)

    def cancel_batch(self, batch_id: str) -> Cancellation | None:
        """Stop a batch: what waits is deleted, what runs is interrupted if it is a member. None if there is none.

        Takes some seconds where ComfyUI does not stop at once.
        """
        batch = self.find(batch_id)
        if batch is None:
            return None
        if batch.ended_as:
            return Cancellation(batch_id, batch.state, message=f"the batch is {batch.state} already")
        if batch.is_whole:
            self.end_if_over(batch_id)
            return Cancellation(batch_id, batch.state, message="all members have ended: there is nothing to stop")
        said = cancel(batch, self.host)
        if said.not_stopped:
            batch.reason = f"{len(said.not_stopped)} could not be stopped: {said.not_stopped[0]['reason']}"
        self.end(batch_id, "cancelled")
        return said

    def summaries(self) -> list[dict[str, Any]]:
        """Every batch that can be looked at, newest first."""
        with self._lock:
            known = [*self._active_batches.values(), *self._ended.values()]
            return sorted((batch.summary() for batch in known), key=lambda each: each["created_at"], reverse=True)

    def describe(self, batch_id: str) -> dict[str, Any] | None:
        """All that is known of a batch."""
        with self._lock:
            batch = self.find(batch_id)
            seen = None if batch is None else batch.as_it_stands()
        return None if seen is None else seen.as_json()

    def tell(self, batch: BatchState) -> None:
        """Tell open pages how a batch stands, if that is news."""
        with self._telling:  # what is seen first is said first
            with self._lock:
                summary = batch.summary()
                if self._told.get(batch.batch_id) == summary:
                    return
                self._told[batch.batch_id] = summary
            self.host.send("e3.batch", summary)

    def _complain(self, message: str, client_id: Any) -> None:
        LOG.error("%s", message)
        self.host.send("e3.notice", {"message": message}, client_id if isinstance(client_id, str) else None)

    def _cleanup_expired(self) -> None:
        now = self.now()
        with self._lock:
            expired = [
                batch.batch_id
                for batch in self._active_batches.values()
                if now - max(batch.created_at, batch.last_sign_at) > EXPIRY_SECONDS
            ]
            for batch_id, batch in list(self._ended.items()):
                if now - batch.last_sign_at > EXPIRY_SECONDS:
                    del self._ended[batch_id]
                    self._told.pop(batch_id, None)
        for batch_id in expired:
            self.end(batch_id, "expired", f"nothing has happened for {EXPIRY_SECONDS:.0f} seconds")


def _pnginfo(request: Mapping[str, Any]) -> dict[str, Any]:
    """What ComfyUI writes into the files of a prompt beside the prompt itself: the workflow."""
    extra_data = request.get("extra_data")
    found = extra_data.get("extra_pnginfo") if isinstance(extra_data, dict) else None
    return found if isinstance(found, dict) else {}


def _references(images: Any) -> list[Any]:
    """What may be kept of pictures: names of files. A picture itself would fill the memory."""
    given = list(images) if isinstance(images, (list, tuple)) else []
    kept: list[Any] = []
    for image in given:
        if isinstance(image, str):
            kept.append(image)
        elif isinstance(image, Mapping) and isinstance(image.get("filename"), str):
            kept.append({key: str(image.get(key, "")) for key in ("filename", "subfolder", "type")})
    if len(kept) < len(given) or (images is not None and not isinstance(images, (list, tuple))):
        LOG.warning("A result holds something else than names of files: it is not kept")
    return kept


def _plain(metadata: Any) -> dict[str, Any]:
    """What may be kept of metadata: what JSON can say."""
    try:
        plain = json.loads(json.dumps(metadata or {}))
    except Exception:  # noqa: BLE001 - whatever it is, it is nothing that can be kept
        return {}
    return plain if isinstance(plain, dict) else {}
