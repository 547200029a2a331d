"""The stream of events: read from the database in commit order and sent to clients as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from comfyui_agent.access.gate import EVERYONE
from comfyui_agent.access.problem import short_of
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.domain.events import Event
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store

log = logging.getLogger(__name__)

PAUSE = 0.25
AT_ONCE = 500
CATCHING_UP = 2
MOST_BEHIND = 1_000
HEARTBEAT = 10.0
MOST_LISTENERS = 400
MOST_WAITING = 400
CALLER_SHARE = 4
"""One token may hold one part in this many of the streams, and of the requests that wait."""


class _Listener:
    def __init__(self, caller: str, *, is_looking: bool) -> None:
        self.caller = caller
        self.is_looking = is_looking
        self.waiting: deque[tuple[Event, bytes]] = deque()
        self.wakes = asyncio.Event()
        self.is_dropped = False


class EventFeed:
    """Follows the events in the database and sends each to all listeners. Each event is encoded once."""

    def __init__(
        self,
        store: Store,
        on_event: Callable[[Event], None] = lambda _: None,
        while_heard: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_event` is called with every event that is followed, `while_heard` again and again while one looks."""
        self._store = store
        self._on_event = on_event
        self._while_heard = while_heard
        self._last_id = 0
        self._listeners: set[_Listener] = set()
        self.is_closed = False
        self._waiting: dict[int | str, set[asyncio.Event]] = {}
        self._waiting_of: Counter[str] = Counter()
        self._catching_up = asyncio.Semaphore(CATCHING_UP)

    async def begin(self) -> None:
        """Start after the newest event."""
        self._last_id = await self._store.run(ops.newest_event)

    async def follow(self) -> None:
        while True:
            try:
                if any(each.is_looking for each in self._listeners):
                    await FILES.run(self._while_heard)
                await self.catch_up()
            except StoreError as error:
                log.warning("events cannot be followed: %s", error)
            except Exception:
                log.exception("following the events failed")
            await asyncio.sleep(PAUSE)

    async def catch_up(self) -> None:
        """Send the events that came since the last call."""
        while events := await self._store.run(ops.events_after, self._last_id, AT_ONCE):
            for event in events:
                self._last_id = event.id
                self._send(event)
            await asyncio.sleep(0)

    def _send(self, event: Event) -> None:
        if self._listeners:
            item = event, as_sent(event)
            for listener in list(self._listeners):
                listener.waiting.append(item)
                listener.wakes.set()
                if len(listener.waiting) > MOST_BEHIND:  # it can come back with the last id that it has
                    listener.is_dropped = True
                    self._listeners.discard(listener)
        subject = event.batch_id if event.name.startswith("batch.") else event.job_id
        for woken in self._waiting.get(subject or "", ()):
            woken.set()
        self._on_event(event)

    def listen(
        self,
        after: int | None,
        batch_id: str | None = None,
        caller: str = EVERYONE,
        *,
        with_audit: bool = True,
        is_looking: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        """Stream every event after the id `after`, or from now on, with a comment in quiet times.

        The stream ends when the listener is too slow or the server stops. A client that comes back with its last id
        misses nothing. Problem 503 if too many are open.
        """
        if shortage := self._shortage(caller):
            raise short_of(shortage, "Close some, or try again in 10 s.", seconds=10)

        def is_wanted(event: Event) -> bool:
            return (batch_id is None or event.batch_id == batch_id) and (with_audit or not event.is_audit)

        return self._stream(after, is_wanted, _Listener(caller, is_looking=is_looking))

    def _shortage(self, caller: str) -> str:
        if len(self._listeners) >= MOST_LISTENERS:
            return f"too many streams of events are open: {len(self._listeners)}"
        own = sum(each.caller == caller for each in self._listeners)
        is_too_many = caller != EVERYONE and own >= MOST_LISTENERS // CALLER_SHARE
        return f"too many of your streams of events are open: {own}" if is_too_many else ""

    async def _stream(
        self, after: int | None, is_wanted: Callable[[Event], bool], listener: _Listener
    ) -> AsyncGenerator[bytes, None]:
        if self._shortage(listener.caller):  # others have come in between
            return
        self._listeners.add(listener)
        last = self._last_id
        try:
            yield b": events of E3\nretry: 2000\n\n"
            if after is not None:
                is_known = after <= await self._store.run(ops.newest_event)  # not an id of another database
                last = after if is_known else last
                async for event in self._missed(last):
                    last = event.id
                    if is_wanted(event):
                        yield as_sent(event)
            sent_at = time.monotonic()
            while not self.is_closed and not listener.is_dropped:
                await SYSTEM_CLOCK.wait_for(listener.wakes, HEARTBEAT)
                listener.wakes.clear()
                while listener.waiting and not listener.is_dropped:
                    event, text = listener.waiting.popleft()
                    if event.id > last and is_wanted(event):
                        sent_at = time.monotonic()
                        yield text
                if time.monotonic() - sent_at >= HEARTBEAT:
                    sent_at = time.monotonic()
                    yield b": still here\n\n"
        finally:
            self._listeners.discard(listener)

    async def _missed(self, after: int) -> AsyncIterator[Event]:
        while True:
            async with self._catching_up:
                events = await self._store.run(ops.events_after, after, AT_ONCE)
            if not events:
                return
            for event in events:
                yield event
            after = events[-1].id

    @contextmanager
    def waiting_for(self, subject: int | str, caller: str = EVERYONE) -> Iterator[asyncio.Event]:
        """Is set by every event of a job, by its id, or of a batch, and at the end. Problem 503 if too many wait."""
        own = self._waiting_of[caller]
        if self._waiting_of.total() >= MOST_WAITING or (caller != EVERYONE and own >= MOST_WAITING // CALLER_SHARE):
            raise short_of("too many requests wait for the end of something", "Try again in 10 s.", seconds=10)
        woken = asyncio.Event()
        self._waiting_of[caller] += 1
        self._waiting.setdefault(subject, set()).add(woken)
        try:
            yield woken
        finally:
            self._waiting_of[caller] -= 1
            self._waiting[subject].discard(woken)
            if not self._waiting[subject]:
                del self._waiting[subject]

    async def close(self) -> None:
        self.is_closed = True
        for woken in [each for waiting in self._waiting.values() for each in waiting]:
            woken.set()
        for listener in self._listeners:
            listener.wakes.set()


def as_sent(event: Event) -> bytes:
    """An event as a server-sent event, with the same facts as in the metrics log."""
    facts = json.dumps(event.as_json(), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.name}\ndata: {facts}\n\n".encode("utf-8", "backslashreplace")
