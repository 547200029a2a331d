"""Threads beside the event loop. Each kind of work has a pool of its own, so that none waits for another.

The threads are daemons: a process that is told to leave does not wait for what they are doing.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

IDLE_SECONDS = 10.0


class Pool(Executor):
    """At most so many threads, started when they are needed. Work waits for its turn in the order in which it came."""

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._comes = threading.Condition()
        self._threads = 0
        self._idle = 0

    async def run(self, work: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Do something in one of the threads. If whoever waits is cancelled, work that has not begun is dropped."""
        return await asyncio.wrap_future(self.submit(work, *arguments, **options))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._comes:
            self._calls.append((future, partial(fn, *args, **kwargs)))
            if len(self._calls) <= self._idle:
                self._comes.notify()
            elif self._threads < self._most:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
                self._threads += 1
        return future

    def _work(self) -> None:
        while (call := self._next()) is not None:
            _do(*call)
            del call  # what it holds is not kept until the next one comes

    def _next(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        with self._comes:
            while not self._calls:
                self._idle += 1
                has_come = self._comes.wait(IDLE_SECONDS)
                self._idle -= 1
                if not has_come and not self._calls:
                    self._threads -= 1
                    return None
            return self._calls.popleft()


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is told to whoever waits
        future.set_exception(error)


# The pools, by what they are for. What people ask for over HTTP never delays a result.

PUBLISHING = Pool("e3-publish", 4)
"""Publishing results, and other work on their files."""
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
RENDERING, FILES = Pool("e3-render", 2), Pool("e3-files", 4)
REQUESTS, THUMBNAILS = Pool("e3-requests", 2), Pool("e3-thumbnails", 2)
"""The page."""
