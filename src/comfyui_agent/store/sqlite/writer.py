"""The writer thread. Callers that wait at the same time share a commit, and so one wait for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import apsw

from comfyui_agent.store.errors import StoreClosed
from comfyui_agent.store.sqlite.session import SqliteSession

log = logging.getLogger(__name__)

MOST_AT_ONCE = 256
LOOK_SECONDS = 0.1
GATHER_SECONDS = 0.01
"""For so long after a commit, calls that can wait are gathered for the next one."""
SAY_LOCKED_AFTER = 5.0
PATIENCE_AT_THE_END = 0.3
DISK_TROUBLE = (apsw.FullError, apsw.IOError, apsw.CorruptError)
"""After these the whole transaction is in doubt."""


@dataclass
class Call:
    """The work of one caller, and its future."""

    work: Callable[[SqliteSession], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    can_wait: bool = False
    result: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():  # the caller was cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs calls in order, many to a commit. Each succeeds or fails alone."""

    def __init__(
        self,
        connect: Callable[..., apsw.Connection],
        translate: Callable[[apsw.Error], Exception],
        give_up: Callable[[], bool],
    ) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._translate = translate
        self._closing = threading.Event()
        self._give_up = give_up
        self._give_up_at = math.inf
        self._said_locked = False
        self._ended = threading.Event()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
        self.database = connect(wait=self._is_patient)
        """For others only before the thread runs."""
        self.session = SqliteSession(self.database)
        self._version = self.database.pragma("data_version")
        self._looked_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="e3-writer", daemon=True)
        self.commits = 0
        self._committed_at = 0.0
        self.changes = 0

    def start(self) -> None:
        self._thread.start()

    async def write(self, work: Callable[[SqliteSession], Any], *, can_wait: bool = False) -> Any:
        if self._closing.is_set():
            raise StoreClosed("the store is closed")
        loop = asyncio.get_running_loop()
        call = Call(work, loop, loop.create_future(), can_wait)
        self._calls.put(call)
        return await call.future

    def on_change(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._listeners.append((loop, call))

    def ask_to_close(self) -> None:
        """Close after waiting calls are written, unless the database stays locked."""
        self._give_up_at = time.monotonic() + PATIENCE_AT_THE_END
        self._closing.set()
        self._calls.put(None)

    def wait_closed(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def _is_patient(self, seconds: float) -> bool:
        """While another process writes, wait: callers never see a locked database."""
        if seconds < SAY_LOCKED_AFTER:
            self._said_locked = False
        elif not self._said_locked:
            self._said_locked = True
            log.warning("the database has been locked by another program for %.0f s; waiting", seconds)
        return time.monotonic() < self._give_up_at and not self._give_up()

    def _run(self) -> None:
        try:
            while True:
                calls = self._wait_for_calls()
                if calls:
                    self._commit(calls)
                elif self._closing.is_set():
                    return
                self._look_for_changes()
        finally:
            with contextlib.suppress(apsw.Error):
                self.database.close()
            self._refuse_the_rest()
            self._ended.set()

    def _wait_for_calls(self) -> list[Call]:
        try:
            first = self._calls.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return []
        if first is not None and first.can_wait:
            time.sleep(max(0.0, self._committed_at + GATHER_SECONDS - time.monotonic()))
        return self._more([] if first is None else [first])

    def _more(self, calls: list[Call]) -> list[Call]:
        with contextlib.suppress(queue.Empty):
            while len(calls) < MOST_AT_ONCE:
                call = self._calls.get_nowait()
                if call is not None:
                    calls.append(call)
        return calls

    def _commit(self, calls: list[Call]) -> None:
        """Run all calls, and those that arrive meanwhile, in one transaction.

        If one fails, all are undone and run again, each in a savepoint: failures are rare, and savepoints cost time.
        """
        before = self.database.total_changes()
        try:
            try:
                self._transact(calls)
            except DISK_TROUBLE:
                raise
            except Exception as error:  # noqa: BLE001 - the next round shows whose it is
                self._roll_back()
                self._transact(calls, are_apart=True, mends_texts=isinstance(error, UnicodeDecodeError))
            self.commits += 1
            self.changes += self.database.total_changes() != before
        except Exception as error:  # noqa: BLE001 - whatever it was, each caller is told
            self._roll_back()
            failure = self._translate(error) if isinstance(error, apsw.Error) else error
            for call in calls:
                call.error, call.result = call.error or failure, None
        self._tell(calls)

    def _transact(self, calls: list[Call], *, are_apart: bool = False, mends_texts: bool = False) -> None:
        done = 0
        self.database.execute("BEGIN IMMEDIATE")
        if mends_texts:
            self.session.mend_texts()
        while done < len(calls):
            for call in calls[done:]:
                if are_apart:
                    self._run_apart(call)
                else:
                    call.result = call.work(self.session)
                done += 1
            self._more(calls)
        self.database.execute("COMMIT")
        self._committed_at = time.monotonic()

    def _run_apart(self, call: Call) -> None:
        """Run a call in a savepoint: its failure undoes its own changes only."""
        self.database.execute("SAVEPOINT call")
        try:
            call.result = call.work(self.session)
        except DISK_TROUBLE:
            raise
        except Exception as error:  # noqa: BLE001 - it is told to whoever asked
            self.database.execute("ROLLBACK TO call")
            call.error = self._translate(error) if isinstance(error, apsw.Error) else error
        self.database.execute("RELEASE call")

    def _roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")

    def _tell(self, calls: list[Call]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        for call in calls:
            by_loop.setdefault(call.loop, []).append(call)
        for loop, waiting in by_loop.items():
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(_settle_all, waiting)

    def _look_for_changes(self) -> None:
        """Call the listeners if another process has committed since the last look."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        try:
            version = self.database.pragma("data_version")
        except apsw.Error:
            return
        if version != self._version:
            self._version = version
            self.changes += 1
            for loop, call in self._listeners:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(call)

    def _refuse_the_rest(self) -> None:
        calls = self._more([])
        for call in calls:
            call.error = StoreClosed("the store was closed before the work was done")
        self._tell(calls)


def _settle_all(calls: list[Call]) -> None:
    for call in calls:
        call.settle()
