"""The prompt queue and the history: in memory, forgotten on restart, shared by the wire and the worker."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable
from itertools import count, islice
from typing import Any

from comfyui_agent.wire.prompts import Json, Queue, QueueItem, history_slice

MAX_HISTORY = 10_000


class PromptQueue:
    """A heap of prompts, what runs now, and what has ended. `changed` is called after every change of the count."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._lock = threading.Condition()
        self._pending: list[QueueItem] = []
        self._running: QueueItem | None = None
        self._history: dict[str, Json] = {}
        self._flags: set[str] = set()
        self.closed = False
        self.numbers = count()
        """The next queue numbers. A prompt takes one even if it is rejected later."""

    def put(self, item: QueueItem) -> None:
        with self._lock:
            heapq.heappush(self._pending, item)
            self._changed()
            self._lock.notify()

    def take(self) -> QueueItem | None:
        """Wait for the next prompt, which then runs; None when a flag was set or the queue was closed instead."""
        with self._lock:
            self._lock.wait_for(lambda: self._pending or self._flags or self.closed)
            if self.closed or not self._pending:
                return None
            self._running = heapq.heappop(self._pending)
            self._changed()
            return self._running

    def done(self, item: QueueItem, ended: Json) -> None:
        """Move the prompt that ran to the history; `ended` has its outputs, meta and status."""
        with self._lock:
            self._running = None
            if len(self._history) > MAX_HISTORY:
                self._history.pop(next(iter(self._history)))
            self._history[item.prompt_id] = {"prompt": item.shown(), **ended}
            self._changed()

    def running_and_pending(self) -> Queue:
        with self._lock:
            return Queue([] if self._running is None else [self._running], list(self._pending))

    def is_running(self, prompt_id: Any) -> bool:
        with self._lock:
            return self._running is not None and self._running.prompt_id == prompt_id

    def remaining(self) -> int:
        return sum(map(len, self.running_and_pending()))

    def delete(self, prompt_id: Any) -> bool:
        """Take one pending prompt with that id out; what runs stays."""
        with self._lock:
            for index, item in enumerate(self._pending):
                if item.prompt_id == prompt_id:
                    self._pending.pop(index)
                    heapq.heapify(self._pending)
                    if not self._pending:  # the real server then says twice that its queue has changed
                        self._changed()
                    self._changed()
                    return True
            return False

    def clear(self) -> None:
        with self._lock:
            self._pending = []
            self._changed()

    def history(self, max_items: int | None = None, offset: int = -1) -> Json:
        with self._lock:
            wanted = history_slice(len(self._history), max_items, offset)
            return dict(islice(self._history.items(), wanted.start, wanted.stop))

    def history_of(self, prompt_id: str) -> Json | None:
        with self._lock:
            return self._history.get(prompt_id)

    def forget(self, prompt_ids: Iterable[Any] | None) -> None:
        """Take prompts out of the history; all of them for None."""
        with self._lock:
            for prompt_id in list(self._history) if prompt_ids is None else prompt_ids:
                self._history.pop(prompt_id, None)

    def set_flag(self, name: str) -> None:
        with self._lock:
            self._flags.add(name)
            self._lock.notify()

    def take_flags(self) -> set[str]:
        with self._lock:
            flags, self._flags = self._flags, set()
            return flags

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._lock.notify_all()
