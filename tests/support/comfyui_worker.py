"""The thread that works ComfyUI's queue off, for the imitation of its insides: held and let go by a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from support.comfyui_executing import PromptExecutor
from support.comfyui_queue import Item, PromptQueue, Server

PATIENCE_SECONDS = 20.0


class Serving(Server, Protocol):
    prompt_queue: PromptQueue
    last_prompt_id: str


class Worker:
    """Takes prompts off the queue and runs them, as fast as it may: without limit, or as many as it was allowed."""

    def __init__(self, server: Serving, executor: PromptExecutor, fields: int, held: bool) -> None:
        self._server = server
        self._executor = executor
        self._fields = fields
        self._allowed: int | None = 0 if held else None
        self._closing = False
        self._failure: BaseException | None = None
        self._started: list[str] = []
        self._finished = 0
        self._changed = threading.Condition(server.prompt_queue.mutex)
        self._thread = threading.Thread(target=self._work, name="comfyui-inside-worker")
        self._thread.start()

    def hold(self) -> None:
        """Start nothing more. What runs already goes on."""
        with self._changed:
            self._allowed = 0

    def release(self) -> None:
        with self._changed:
            self._allowed = None
            self._server.prompt_queue.not_empty.notify_all()

    def start_one(self) -> tuple[str, int]:
        """Let one prompt start; its id, and how many have started with it. Waits for one to be queued, and to run."""
        with self._changed:
            assert self._allowed is not None, "hold() first: the worker takes every prompt as it comes"
            place = self._server.prompt_queue.task_counter + 1
            self._allowed += 1
            self._server.prompt_queue.not_empty.notify_all()
            self.wait(lambda: len(self._started) >= place, "no prompt came to be started")
            return self._started[place - 1], place

    def wait_finished(self, place: int) -> None:
        self.wait(lambda: self._finished >= place, "the prompt did not end")

    def ended(self) -> list[str]:
        """The ids of all prompts that ran, whatever came of them."""
        return self._started[: self._finished]

    def idle(self) -> bool:
        nothing_queued = self._server.prompt_queue.get_tasks_remaining() == 0
        return nothing_queued and self._finished == len(self._started)

    def wait(self, true: Callable[[], bool], otherwise: str) -> None:
        """Until this is true of the queue. Looked at whenever a prompt starts or ends."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._failure is not None or true(), PATIENCE_SECONDS)
            if self._failure is not None:
                raise AssertionError("the worker broke") from self._failure
            assert done, f"{otherwise} within {PATIENCE_SECONDS} s"

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._server.prompt_queue.not_empty.notify_all()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "a node does not end"
        if self._failure is not None:
            raise AssertionError("the worker broke") from self._failure

    def _work(self) -> None:
        queue = self._server.prompt_queue
        try:
            while True:
                with self._changed:
                    queue.not_empty.wait_for(lambda: self._closing or bool(queue.queue and self._allowed != 0))
                    taken = None if self._closing else queue.get()
                    if taken is None:
                        return
                    if self._allowed is not None:
                        self._allowed -= 1
                self._run(*taken)
                with self._changed:
                    self._finished += 1
                    self._changed.notify_all()
        except BaseException as failure:  # noqa: BLE001 - told to the test, which waits in another thread
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _begin(self, prompt_id: str) -> None:
        with self._changed:
            self._started.append(prompt_id)
            self._changed.notify_all()

    def _run(self, item: Item, place: int) -> None:
        prompt_id = self._server.last_prompt_id = item[1]
        assert len(item) == self._fields, f"an item of {len(item)} fields was queued; this version has {self._fields}"
        secrets = item[5] if self._fields == 6 else {}
        self._executor.execute(item[2], prompt_id, {**item[3], **secrets}, item[4], lambda: self._begin(prompt_id))
        well = self._executor.success
        status = PromptQueue.ExecutionStatus("success" if well else "error", well, self._executor.status_messages)
        taken_out = {"process_item": lambda queued: queued[:5] + queued[6:]} if self._fields == 6 else {}
        self._server.prompt_queue.task_done(place, self._executor.history_result, status, **taken_out)
        if self._server.client_id is not None:
            self._server.send_sync("executing", {"node": None, "prompt_id": prompt_id}, self._server.client_id)
