"""Threads beside the event loop. Each kind of work has a pool of its own, so that none waits for another.

The threads are daemons: a process that is told to leave does not wait for what they are doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

IDLE_SECONDS = 10.0


class Pool:
    """At most so many threads, started when they are needed. Work waits for its turn in the order in which it came."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._threads = 0
        self._open = 0
        """Calls that wait or run."""

    async def run(self, work: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Do something in one of the threads. If whoever waits is cancelled, work that has not begun is dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._counting:
            self._calls.put(_Call(partial(work, *arguments, **options), loop, future))
            self._open += 1
            is_new = self._threads < min(self._open, self._most)
            self._threads += is_new
        if is_new:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return await future

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._counting:
                    if self._calls.empty():
                        self._threads -= 1
                        return
                continue
            call.do()
            del call  # what it holds is not kept until the next one comes
            with self._counting:
                self._open -= 1


class _Call(NamedTuple):
    work: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]

    def do(self) -> None:
        if self.future.cancelled():
            return
        try:
            result = self.work()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self._deliver(self.future.set_exception, error)
        else:
            self._deliver(self.future.set_result, result)

    def _deliver(self, settle: Callable[[Any], None], value: Any) -> None:
        with contextlib.suppress(RuntimeError):  # that loop has ended
            self.loop.call_soon_threadsafe(lambda: None if self.future.done() else settle(value))


# The pools, by what they are for. What people ask for over HTTP never delays a result.

PUBLISHING = Pool("e3-publish", 4)
"""Publishing results, and other work on their files."""
OBJECTS = Pool("e3-objects", 8)
"""The same with an object store, which may be slow."""
RECORDING = Pool("e3-record", 2)
"""The metrics log and the live file."""
INTAKE = Pool("e3-intake", 4)
"""Job files and prompts."""
PLANNING = Pool("e3-batches", 2)
"""The jobs of batches."""
PARSING = Pool("e3-parse", 2)
"""Large answers of servers."""
PROCESSES = Pool("e3-processes", 4)
"""Local ComfyUI processes."""
UPKEEP = Pool("e3-upkeep", 1)
"""Removing files that are old."""
NOTIFYING = Pool("e3-notify", 2)
"""Waiting for the processes that send notifications."""
RENDERING, FILES = Pool("e3-render", 2), Pool("e3-files", 4)
REQUESTS, THUMBNAILS = Pool("e3-requests", 2), Pool("e3-thumbnails", 2)
"""The page."""
