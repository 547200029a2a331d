"""Everything that happens, told in the order of commits to whoever listens, each event made into text once."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.domain.events import Event
from comfyui_agent.events.bus import Bus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.access import EVERYONE

log = logging.getLogger(__name__)

PAUSE = 0.25
AT_ONCE = 500
CATCHING_UP = 2
MOST_BEHIND = 1_000
HEARTBEAT = 10.0
MOST_LISTENERS = 400
EACH = 4
"""One caller has at most one in so many of the places, where callers can be told apart."""


class TooManyListeners(Exception):
    """More streams of events are open than can be served: whose there are too many."""


class _Listener:
    def __init__(self, who: str) -> None:
        self.who = who
        self.waiting: deque[tuple[Event, bytes]] = deque()
        self.wakes = asyncio.Event()
        self.is_dropped = False


class News:
    """Follows the events in the database, and hands each to listeners as a server-sent event."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told = 0
        self._listeners: set[_Listener] = set()
        self._bus = Bus()
        self._is_over = False
        self._catching_up = asyncio.Semaphore(CATCHING_UP)

    def on_event(self, hear: Callable[[Event], None]) -> None:
        self._bus.subscribe(hear)

    async def begin(self) -> None:
        """What happened before is not told, unless someone asks for it."""
        self._told = await self._store.run(ops.newest_event)

    async def follow(self) -> None:
        while True:
            try:
                await self.catch_up()
            except StoreError as error:
                log.warning("events cannot be followed: %s", error)
            except Exception:
                log.exception("following the events failed")
            await asyncio.sleep(PAUSE)

    async def catch_up(self) -> None:
        while events := await self._store.run(ops.events_after, self._told, AT_ONCE):
            for event in events:
                self._tell(event)
            self._told = events[-1].id
            await asyncio.sleep(0)

    def _tell(self, event: Event) -> None:
        self._bus.tell(event)
        if not self._listeners:
            return
        told = event, as_sent(event)
        for listener in list(self._listeners):
            listener.waiting.append(told)
            listener.wakes.set()
            if len(listener.waiting) > MOST_BEHIND:  # it does not read: it comes back with the last id that it has
                listener.is_dropped = True
                self._listeners.discard(listener)

    def listen(
        self, after: int | None, batch_id: str | None = None, who: str = EVERYONE, *, with_audit: bool = True
    ) -> AsyncGenerator[bytes, None]:
        """Every event behind one that the listener has, or from now on; a comment now and then shows that all is well.

        It ends when the listener is too slow, or the page is: whoever comes back with the last id misses nothing.
        The audit trail, with everyone's addresses, is for admins. `who` listens, and leaves
        places for others: TooManyListeners.
        """
        if words := self._shortage(who):
            raise TooManyListeners(words)

        def is_told(event: Event) -> bool:
            return (batch_id is None or event.batch_id == batch_id) and (with_audit or not event.is_audit)

        return self._heard(after, is_told, who)

    def _shortage(self, who: str) -> str:
        if len(self._listeners) >= MOST_LISTENERS:
            return f"too many streams of events are open: {len(self._listeners)}"
        own = sum(each.who == who for each in self._listeners)
        is_too_many = who != EVERYONE and own >= MOST_LISTENERS // EACH
        return f"too many of your streams of events are open: {own}" if is_too_many else ""

    async def _heard(
        self, after: int | None, is_told: Callable[[Event], bool], who: str
    ) -> AsyncGenerator[bytes, None]:
        if self._shortage(who):  # others have come in between; whoever comes back is told
            return
        listener = _Listener(who)
        self._listeners.add(listener)
        last = self._told
        try:
            yield b": events of E3\nretry: 2000\n\n"
            if after is not None:
                is_ours = after <= await self._store.run(
                    ops.newest_event
                )  # else it was another database that told of it
                last = after if is_ours else last
                async for event in self._missed(last):
                    last = event.id
                    if is_told(event):
                        yield as_sent(event)
            heard_at = time.monotonic()
            while not self._is_over and not listener.is_dropped:
                await SYSTEM_CLOCK.wait_for(listener.wakes, HEARTBEAT)
                listener.wakes.clear()
                while listener.waiting and not listener.is_dropped:
                    event, text = listener.waiting.popleft()
                    if event.id > last and is_told(event):
                        heard_at = time.monotonic()
                        yield text
                if time.monotonic() - heard_at >= HEARTBEAT:
                    heard_at = time.monotonic()
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

    async def close(self) -> None:
        self._is_over = True
        for listener in self._listeners:
            listener.wakes.set()


def as_sent(event: Event) -> bytes:
    """A server-sent event: its number to come back with, its name, and what the log would say."""
    facts = json.dumps(event.as_json(), ensure_ascii=False)
    return f"id: {event.id}\nevent: {event.name}\ndata: {facts}\n\n".encode("utf-8", "backslashreplace")
