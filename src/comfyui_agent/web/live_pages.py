"""Live pages: the parts of a page, rendered once for everyone who has it open, sent only when they change."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass, field

from comfyui_agent.access.gate import EVERYONE
from comfyui_agent.access.problem import short_of
from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.pools import RENDERING
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.fleet_view import FleetView
from comfyui_agent.web.html import render_fragment, with_sentence
from comfyui_agent.web.screens import Build, Fragment, NoScreen, View

log = logging.getLogger(__name__)

TICK = 0.25
"""Pages are rendered at most four times a second."""
SHARE = 4
"""At most one part in this many of the time is spent rendering, so that watching does not slow the work down."""
ANYWAY_SECONDS = 5.0
"""A page is rendered after this time even if nothing changed, because it shows times."""
HEARTBEAT = 5.0
MOST_WATCHERS = 900
MOST_TOPICS = 200
CALLER_SHARE = 4
"""One token may hold one part in this many of the watchers and topics."""
AT_A_TIME = 0.1
BEHIND_SECONDS = 10.0


@dataclass
class _Part:
    key: Hashable | None
    sent: bytes


@dataclass(eq=False)
class _Watcher:
    """One open page, with the newest version of each part that was not sent yet."""

    caller: str
    parts: dict[str, _Part]
    error: bytes = b""
    wakes: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class _Topic:
    view: View
    build: Build
    parts: dict[str, _Part] = field(default_factory=dict)
    watchers: set[_Watcher] = field(default_factory=set)
    seen: tuple[int, int] = (-1, -1)
    rendered_at: float = -math.inf


class LivePages:
    """Renders the pages that are open, and streams to each what has changed."""

    def __init__(self, store: Store, fleet: FleetView) -> None:
        self._store = store
        self._fleet = fleet
        self._topics: dict[View, _Topic] = {}
        self._is_closed = False

    @property
    def watchers(self) -> int:
        return sum(len(topic.watchers) for topic in self._topics.values())

    async def keep_rendering(self) -> None:
        while True:
            spent = await self._render_due()
            await asyncio.sleep(max(TICK - spent, spent * (SHARE - 1), 0.01))

    async def _render_due(self) -> float:
        """Render what is due for a moment, what has waited longest first. Returns how long that took."""
        began = time.monotonic()
        for topic in sorted(filter(self._is_due, self._topics.values()), key=lambda topic: topic.rendered_at):
            await self._refresh(topic)
            if time.monotonic() - began > AT_A_TIME:
                break
        return time.monotonic() - began

    def watch(self, view: View, build: Build, caller: str = EVERYONE) -> AsyncGenerator[bytes, None]:
        """Stream a page as server-sent events: first all parts, then what changes. Problem 503 if too many are open."""
        if shortage := self._shortage(view, caller):
            raise short_of(shortage, "Close some, or try again in 10 s.", seconds=10)
        return self._stream(view, build, caller)

    def _shortage(self, view: View, caller: str) -> str:
        is_new = view not in self._topics
        if self.watchers >= MOST_WATCHERS:
            return f"too many pages are open: {self.watchers}"
        if is_new and len(self._topics) >= MOST_TOPICS:
            return f"too many different pages are open: {len(self._topics)}"
        if caller == EVERYONE:
            return ""
        own = [sum(each.caller == caller for each in topic.watchers) for topic in self._topics.values()]
        if sum(own) >= MOST_WATCHERS // CALLER_SHARE:
            return f"too many of your pages are open: {sum(own)}"
        topics = sum(map(bool, own))
        is_too_many = is_new and topics >= MOST_TOPICS // CALLER_SHARE
        return f"too many different pages of yours are open: {topics}" if is_too_many else ""

    async def _stream(self, view: View, build: Build, caller: str) -> AsyncGenerator[bytes, None]:
        if self._shortage(view, caller):  # others have come in between
            return
        topic = self._topics.setdefault(view, _Topic(view, build))
        watcher = _Watcher(caller, dict(topic.parts))
        if watcher.parts:
            watcher.wakes.set()
        topic.watchers.add(watcher)
        try:
            with self._fleet.watched():
                yield b": a page of E3\nretry: 1000\n\n"
                while not self._is_closed:
                    if not await SYSTEM_CLOCK.wait_for(watcher.wakes, HEARTBEAT):
                        yield self._beat(topic)
                        continue
                    watcher.wakes.clear()
                    if watcher.error:
                        yield watcher.error
                        watcher.error = b""
                    if watcher.parts:
                        parts, watcher.parts = watcher.parts, {}
                        sent = b",".join(part.sent for part in parts.values())
                        yield b"event: fragments\ndata: [" + sent + b"]\n\n"
                yield b"event: bye\ndata: {}\n\n"
        finally:
            topic.watchers.discard(watcher)
            if not topic.watchers:
                self._topics.pop(view, None)

    def _beat(self, topic: _Topic) -> bytes:
        """A heartbeat. It says how many seconds the page is behind, if it is due and was not rendered."""
        age = time.monotonic() - topic.rendered_at
        behind = round(age) if self._is_due(topic) and BEHIND_SECONDS < age < math.inf else 0
        return f'event: beat\ndata: {{"behind": {behind}}}\n\n'.encode()

    def _is_due(self, topic: _Topic) -> bool:
        is_old = time.monotonic() - topic.rendered_at > ANYWAY_SECONDS
        return bool(topic.watchers) and (is_old or topic.seen != (self._store.version, self._fleet.version))

    async def _refresh(self, topic: _Topic) -> None:
        topic.seen, topic.rendered_at = (self._store.version, self._fleet.version), time.monotonic()
        try:
            screen = await topic.build(topic.view)
            changed = await RENDERING.run(self._render, topic, with_sentence(screen))
        except NoScreen as error:
            self._send_error(topic, "gone", str(error))
        except StoreError as error:
            self._send_error(topic, "trouble", str(error))
        except Exception:
            log.exception("rendering %s failed", topic.view.path)
            self._send_error(topic, "trouble", "the page could not be drawn: the log of e3 says more")
        else:
            topic.parts |= changed
            for watcher in topic.watchers if changed else ():
                watcher.parts |= changed
                watcher.wakes.set()

    def _render(self, topic: _Topic, fragments: tuple[Fragment, ...]) -> dict[str, _Part]:
        """Render the parts and return those that look different now. It runs in a thread and leaves the topic alone."""
        changed: dict[str, _Part] = {}
        for fragment in fragments:
            before = topic.parts.get(fragment.id)
            if before is not None and fragment.key is not None and before.key == fragment.key:
                continue
            found = {"id": fragment.id, "html": render_fragment(fragment, topic.view)}
            sent = json.dumps(found, ensure_ascii=False).encode("utf-8", "backslashreplace")
            if before is not None and before.sent == sent:
                before.key = fragment.key
            else:
                changed[fragment.id] = _Part(fragment.key, sent)
        return changed

    def _send_error(self, topic: _Topic, event: str, message: str) -> None:
        for watcher in topic.watchers:
            watcher.error = f"event: {event}\ndata: {json.dumps({'message': message})}\n\n".encode()
            watcher.wakes.set()

    async def close(self) -> None:
        self._is_closed = True
        for topic in self._topics.values():
            for watcher in topic.watchers:
                watcher.wakes.set()
