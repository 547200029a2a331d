"""The writer thread of a database. Callers that wait at the same time share a commit, and so one wait for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from comfyui_agent.store.errors import StoreClosed
from comfyui_agent.store.port import Deferred, ResultUnknown, Session

MOST_AT_ONCE = 256
LOOK_SECONDS = 0.1
BLOCKED_SECONDS = 5.0
"""How often calls are run again that others keep from a row: all calls wait meanwhile."""
GATHER_SECONDS = 0.01
"""For so long after a commit, calls that can wait are gathered for the next one."""
PATIENCE_AT_THE_END = 0.3


class WriterConnection(Protocol):
    """The connection of a writer thread. Between `begin` and `commit`, `session` runs queries."""

    session: Session

    def begin(self, error: Exception | None = None) -> None:
        """Begin a transaction. `error`: what ended the one before, if the same calls are run again."""

    def commit(self) -> bool:
        """Commit. Returns whether anything was changed. What raises has changed nothing."""

    def roll_back(self) -> None: ...

    def execute(self, statement: str) -> None: ...

    def is_whole(self, error: Exception) -> bool:
        """Whether an error is that of the whole transaction, not of the call in which it happened."""

    def is_blocked(self, error: Exception) -> bool:
        """Whether a call failed because others keep a row locked. It is run again later; other calls go on."""

    def can_retry(self, error: Exception) -> bool:
        """Whether the same calls are to be run again after an error of the whole transaction. May wait."""

    def translate(self, error: Exception) -> Exception:
        """The error of the store that an error of the database stands for. Other errors stay as they are."""

    def wake_others(self) -> None:
        """Tell other processes soon that there is something to do. Raises nothing."""

    def has_news(self) -> bool | None:
        """Whether another process has committed since the last look. None: this one did, and perhaps others."""

    def close(self) -> None: ...


@dataclass(eq=False)
class Call:
    """The work of one caller, and its future."""

    work: Callable[[Session], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    can_wait: bool = False
    wakes: bool = False
    result: Any = None
    error: Exception | None = None
    is_blocked: bool = False

    def run(self, session: Session) -> None:
        self.result, self.error, self.is_blocked = self.work(session), None, False

    def read(self) -> None:
        """Read a result that was deferred. One that is unknown stays deferred."""
        try:
            if self.error is None and isinstance(self.result, Deferred):
                self.result = self.result.read()
        except ResultUnknown:
            pass
        except Exception as error:  # noqa: BLE001 - the caller is told
            self.error = error

    def settle(self) -> None:
        if self.future.done():  # the caller was cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Runs calls in order, many to a commit. Each succeeds or fails alone."""

    def __init__(self, give_up: Callable[[], bool]) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._give_up = give_up
        self._give_up_at = math.inf
        self._ended = threading.Event()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
        self._looked_at = time.monotonic()
        self._blocked: list[Call] = []
        self._blocked_at = 0.0
        self._thread = threading.Thread(target=self._run, name="e3-writer", daemon=True)
        self.commits = 0
        self._committed_at = 0.0
        self.changes = 0

    def start(self, connection: WriterConnection) -> None:
        self._connection = connection
        self._thread.start()

    async def write(self, work: Callable[[Session], Any], *, can_wait: bool = False, wakes: bool = False) -> Any:
        if self._closing.is_set():
            raise StoreClosed("the store is closed")
        loop = asyncio.get_running_loop()
        call = Call(work, loop, loop.create_future(), can_wait, wakes)
        self._calls.put(call)
        return await call.future

    def on_change(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._listeners.append((loop, call))

    def ask_to_close(self) -> None:
        """Close after waiting calls are written, unless the database stays away."""
        self._give_up_at = time.monotonic() + PATIENCE_AT_THE_END
        self._closing.set()
        self._calls.put(None)

    def wait_closed(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def is_patient(self) -> bool:
        """While the database is locked or away, wait: callers never see that."""
        return time.monotonic() < self._give_up_at and not self._give_up()

    def _run(self) -> None:
        try:
            while True:
                calls = self._wait_for_calls()
                if calls:
                    self._commit(calls)
                if self._blocked:
                    self._retry_blocked()
                elif not calls and self._closing.is_set():
                    return
                self._look_for_changes()
        finally:
            self._connection.close()
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

    def _commit(self, calls: list[Call], *, are_apart: bool = False) -> None:
        """Run all calls, and those that arrive meanwhile, in one transaction.

        If one fails, all are undone and run again, each in a savepoint: failures are rare, and savepoints cost time.
        """
        while True:
            try:
                try:
                    self.changes += self._transact(calls, are_apart=are_apart)
                except Exception as error:
                    if are_apart or self._connection.is_whole(error):
                        raise
                    self._connection.roll_back()
                    self.changes += self._transact(calls, are_apart=True, error=error)
                self.commits += 1
                has_woken = any(call.wakes for call in calls)
                break
            except Exception as error:  # noqa: BLE001 - whatever it was, each caller is told
                self._connection.roll_back()
                if self._connection.can_retry(error):
                    continue
                failure = self._connection.translate(error)
                for call in calls:
                    call.error, call.result, call.is_blocked = call.error or failure, None, False
                has_woken = False
                break
        self._tell(self._without_unknown(self._without_blocked(calls)))
        if has_woken:
            self._connection.wake_others()

    def _without_unknown(self, calls: list[Call]) -> list[Call]:
        """Read what was deferred. What is unknown is looked up, in transactions that come before all others."""
        for call in calls:
            call.read()
        unknown = [call for call in calls if call.error is None and isinstance(call.result, Deferred)]
        for call in unknown:
            call.work = call.result.look_up
            self._commit([call], are_apart=True)
        return [call for call in calls if call not in unknown] if unknown else calls

    def _without_blocked(self, calls: list[Call]) -> list[Call]:
        """Keep calls that others keep from a row. Returns the rest."""
        blocked = [call for call in calls if call.is_blocked]
        if not blocked or not self.is_patient():
            return calls
        self._blocked += blocked
        self._blocked_at = time.monotonic()
        return [call for call in calls if not call.is_blocked]

    def _retry_blocked(self) -> None:
        """Run one blocked call again, now and then: others wait meanwhile."""
        if time.monotonic() - self._blocked_at > BLOCKED_SECONDS or not self.is_patient():
            self._commit([self._blocked.pop(0)], are_apart=True)

    def _transact(self, calls: list[Call], *, are_apart: bool = False, error: Exception | None = None) -> bool:
        """Run all calls in one transaction. Returns whether they changed anything."""
        done = 0
        self._connection.begin(error)
        while done < len(calls):
            for call in calls[done:]:
                if are_apart:
                    self._run_apart(call)
                else:
                    call.run(self._connection.session)
                done += 1
            if not are_apart:
                self._more(calls)
        has_changed = self._connection.commit()
        self._committed_at = time.monotonic()
        return has_changed

    def _run_apart(self, call: Call) -> None:
        """Run a call in a savepoint: its failure undoes its own changes only."""
        self._connection.execute("SAVEPOINT call")
        try:
            call.run(self._connection.session)
        except Exception as error:
            if self._connection.is_whole(error):
                raise
            self._connection.execute("ROLLBACK TO call")
            call.error, call.is_blocked = self._connection.translate(error), self._connection.is_blocked(error)
        self._connection.execute("RELEASE call")

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
        has_news = self._connection.has_news()
        self.changes += has_news is not False
        if has_news:
            for loop, call in self._listeners:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(call)

    def _refuse_the_rest(self) -> None:
        calls = self._more(self._blocked)
        for call in calls:
            call.error = StoreClosed("the store was closed before the work was done")
        self._tell(calls)


def _settle_all(calls: list[Call]) -> None:
    for call in calls:
        call.settle()
