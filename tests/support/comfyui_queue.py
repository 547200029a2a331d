"""ComfyUI's queue and its interrupt flag, for the imitation of its insides."""

from __future__ import annotations

import copy
import heapq
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

Item = tuple[Any, ...]
"""(number, prompt id, prompt, extra data, outputs), and in newer versions a sixth: what must not be shown."""

KEPT_PROMPTS = 10000


class Server(Protocol):
    """What the queue and the executor need of the server."""

    client_id: str | None
    last_node_id: str | None

    def queue_updated(self) -> None: ...

    def send_sync(self, event: str, data: Any, sid: str | None = None) -> None: ...


class InterruptProcessingException(Exception):
    pass


class Interrupts:
    """The one flag that stops whatever runs; who sees it first takes it down."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._wanted = False

    def interrupt(self, value: bool = True) -> None:
        with self._lock:
            self._wanted = value

    def wanted(self) -> bool:
        with self._lock:
            return self._wanted

    def check(self) -> None:
        with self._lock:
            if self._wanted:
                self._wanted = False
                raise InterruptProcessingException


class PromptQueue:
    """Prompts that wait, run and have ended. The lowest number goes first; equal numbers go by prompt id."""

    class ExecutionStatus(NamedTuple):
        status_str: str
        completed: bool
        messages: list[tuple[str, dict[str, Any]]]

    def __init__(self, server: Server) -> None:
        self.server = server
        self.mutex = threading.RLock()
        self.not_empty = threading.Condition(self.mutex)
        self.task_counter = 0
        self.queue: list[Item] = []
        self.currently_running: dict[int, Item] = {}
        self.history: dict[str, dict[str, Any]] = {}

    def put(self, item: Item) -> None:
        with self.mutex:
            heapq.heappush(self.queue, item)
            self.server.queue_updated()
            self.not_empty.notify()

    def get(self, timeout: float | None = None) -> tuple[Item, int] | None:
        with self.not_empty:
            if not self.not_empty.wait_for(lambda: bool(self.queue), timeout):
                return None
            item, place = heapq.heappop(self.queue), self.task_counter
            self.currently_running[place] = copy.deepcopy(item)
            self.task_counter += 1
            self.server.queue_updated()
            return item, place

    def task_done(
        self,
        item_id: int,
        history_result: dict[str, Any],
        status: ExecutionStatus | None,
        process_item: Callable[[Item], Item] | None = None,
    ) -> None:
        self._end(item_id, history_result, status, process_item)

    def _end(
        self,
        item_id: int,
        history_result: dict[str, Any],
        status: ExecutionStatus | None,
        process_item: Callable[[Item], Item] | None,
    ) -> None:
        with self.mutex:
            item = self.currently_running.pop(item_id)
            if len(self.history) > KEPT_PROMPTS:
                del self.history[next(iter(self.history))]
            if process_item is not None:
                item = process_item(item)
            kept = None if status is None else copy.deepcopy(status._asdict())
            self.history[item[1]] = {"prompt": item, "outputs": {}, "status": kept, **history_result}
            self.server.queue_updated()

    def get_current_queue(self) -> tuple[list[Item], list[Item]]:
        with self.mutex:
            return list(self.currently_running.values()), copy.deepcopy(self.queue)

    def get_current_queue_volatile(self) -> tuple[list[Item], list[Item]]:
        with self.mutex:
            return list(self.currently_running.values()), copy.copy(self.queue)

    def get_tasks_remaining(self) -> int:
        with self.mutex:
            return len(self.queue) + len(self.currently_running)

    def wipe_queue(self) -> None:
        with self.mutex:
            self.queue = []
            self.server.queue_updated()

    def delete_queue_item(self, function: Callable[[Item], bool]) -> bool:
        """Delete the first item, in the order of the heap, that the function says yes to."""
        with self.mutex:
            for place, item in enumerate(self.queue):
                if function(item):
                    del self.queue[place]
                    heapq.heapify(self.queue)
                    self.server.queue_updated()
                    return True
        return False

    def get_history(
        self,
        prompt_id: str | None = None,
        max_items: int | None = None,
        offset: int = -1,
        map_function: Callable[[dict[str, Any]], Any] | None = None,
    ) -> dict[str, Any]:
        """A copy of one prompt's entry, or what a function makes of it; of all prompts, the entries themselves."""
        with self.mutex:
            if prompt_id is not None:
                if prompt_id not in self.history:
                    return {}
                return {prompt_id: (map_function or copy.deepcopy)(self.history[prompt_id])}
            if offset < 0 and max_items is not None:
                offset = len(self.history) - max_items
            names = list(self.history)[max(offset, 0) :][:max_items]
            return {name: map_function(self.history[name]) if map_function else self.history[name] for name in names}

    def wipe_history(self) -> None:
        with self.mutex:
            self.history = {}

    def delete_history_item(self, id_to_delete: str) -> None:
        with self.mutex:
            self.history.pop(id_to_delete, None)


class FiveFieldQueue(PromptQueue):
    """Before 0.3.68: an item has nothing to be taken out."""

    def task_done(  # type: ignore[override]
        self, item_id: int, history_result: dict[str, Any], status: PromptQueue.ExecutionStatus | None
    ) -> None:
        self._end(item_id, history_result, status, None)


class EarlierPromptQueue(FiveFieldQueue):
    """The queue up to 0.3.44, whose history takes no function."""

    def get_history(  # type: ignore[override]
        self, prompt_id: str | None = None, max_items: int | None = None, offset: int = -1
    ) -> dict[str, Any]:
        return super().get_history(prompt_id, max_items, offset)
