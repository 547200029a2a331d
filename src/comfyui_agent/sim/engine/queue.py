"""The prompt queue and the history: in memory, forgotten on restart, shared by the wire and the worker."""

from __future__ import annotations

import copy
import heapq
import threading
from collections.abc import Callable, Iterable
from typing import Any

from comfyui_agent.sim.ports import Json, QueueItem


class PromptQueue:
    """A heap of prompts, what runs now, and what has ended. `changed` is called after every change of the count."""

    def __init__(self, changed: Callable[[], None], max_history: int) -> None:
        self._changed = changed
        self._max_history = max_history
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)
        self._pending: list[QueueItem] = []
        self._running: dict[int, QueueItem] = {}
        self._history: dict[str, Json] = {}
        self._flags: dict[str, bool] = {}
        self._task = 0
        self._closed = False

    def put(self, item: QueueItem) -> None:
        with self._arrived:
            heapq.heappush(self._pending, item)
            self._changed()
            self._arrived.notify()

    def take(self) -> tuple[QueueItem, int] | None:
        """Wait for the next prompt; None when a flag was set or the queue was closed instead."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._pending or self._flags or self._closed)
            if self._closed or not self._pending:
                return None
            item = heapq.heappop(self._pending)
            self._task += 1
            self._running[self._task] = item._replace(prompt=copy.deepcopy(item.prompt))
            self._changed()
            return item, self._task

    def done(self, task: int, result: Json, status: Json) -> None:
        with self._lock:
            item = self._running.pop(task)
            if len(self._history) > self._max_history:
                self._history.pop(next(iter(self._history)))
            entry = {"prompt": item.shown(), "outputs": result["outputs"], "status": status, "meta": result["meta"]}
            self._history[item.prompt_id] = entry
            self._changed()

    def snapshot(self) -> tuple[list[QueueItem], list[QueueItem]]:
        with self._lock:
            return list(self._running.values()), list(self._pending)

    def remaining(self) -> int:
        with self._lock:
            return len(self._pending) + len(self._running)

    def delete(self, prompt_id: Any) -> bool:
        """Take one pending prompt with that id out; what runs stays."""
        with self._lock:
            for index, item in enumerate(self._pending):
                if item.prompt_id == prompt_id:
                    if len(self._pending) == 1:
                        self.clear()
                    else:
                        self._pending.pop(index)
                        heapq.heapify(self._pending)
                    self._changed()
                    return True
            return False

    def clear(self) -> None:
        with self._lock:
            self._pending = []
            self._changed()

    def history(self, max_items: int | None, offset: int) -> Json:
        with self._lock:
            if offset < 0 and max_items is not None:
                offset = len(self._history) - max_items
            chosen: Json = {}
            for index, (prompt_id, entry) in enumerate(self._history.items()):
                if index >= offset:
                    chosen[prompt_id] = entry
                    if max_items is not None and len(chosen) >= max_items:
                        break
            return chosen

    def history_of(self, prompt_id: str) -> Json:
        with self._lock:
            entry = self._history.get(prompt_id)
            return {} if entry is None else {prompt_id: entry}

    def forget(self, prompt_ids: Iterable[Any]) -> None:
        with self._lock:
            for prompt_id in prompt_ids:
                self._history.pop(prompt_id, None)

    def forget_all(self) -> None:
        with self._lock:
            self._history = {}

    def set_flag(self, name: str) -> None:
        with self._arrived:
            self._flags[name] = True
            self._arrived.notify()

    def take_flags(self) -> dict[str, bool]:
        with self._lock:
            flags, self._flags = self._flags, {}
            return flags

    def close(self) -> None:
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed
