"""Living pages: the parts of a screen, rendered once for everyone who looks at it, sent only when they have changed."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, Hashable, Mapping
from dataclasses import dataclass, field

from comfyui_agent.clock import SYSTEM_CLOCK
from comfyui_agent.store.errors import StoreError
from comfyui_agent.store.store import Store
from comfyui_agent.web.access import EVERYONE
from comfyui_agent.web.fleet_view import FleetView
from comfyui_agent.web.html import render_fragment, with_sentence
from comfyui_agent.web.screens import Build, Fragment, NoScreen, View
from comfyui_agent.web.threads import RENDERING

log = logging.getLogger(__name__)

TICK = 0.25
"""At most four times a second."""
SHARE = 4
"""At most one part in so many of the time goes into rendering: what is watched must not slow the work down."""
ANYWAY_SECONDS = 5.0
"""Some things change with the time alone."""
HEARTBEAT = 5.0
MOST_WATCHERS = 900
MOST_TOPICS = 200
EACH = 4
"""One caller has at most one in so many of each, where callers can be told apart."""
AT_A_TIME = 0.1
LEAST_COST = 0.005
BEHIND_SECONDS = 10.0


class TooManyWatchers(Exception):
    """More pages are open than can be served: of what there are too many."""


class _Watcher:
    """One open page: what it has not been sent yet, the newest of each part."""

    def __init__(self, parts: Mapping[str, _Part], who: str) -> None:
        self.parts = dict(parts)
        self.who = who
        self.trouble = b""
        self.wakes = asyncio.Event()
        if parts:
            self.wakes.set()


@dataclass
class _Part:
    key: Hashable | None
    html: str
    sent: bytes


@dataclass
class _Topic:
    """One screen that someone looks at."""

    view: View
    build: Build
    parts: dict[str, _Part] = field(default_factory=dict)
    watchers: set[_Watcher] = field(default_factory=set)
    seen: tuple[int, int] = (-1, -1)
    rendered_at: float = -math.inf
    cost: float = 0.0
    """How long it took the last time."""

    def urgency(self) -> float:
        """Many who look count more, and so does a long wait; one that takes long waits longer."""
        return (time.monotonic() - self.rendered_at) * len(self.watchers) / max(self.cost, LEAST_COST)


class Hub:
    """Renders what is being looked at, and tells each open page what has changed."""

    def __init__(self, store: Store, fleet: FleetView) -> None:
        self._store = store
        self._fleet = fleet
        self._topics: dict[View, _Topic] = {}
        self._is_over = False
        self.rendered = 0
        """How many parts have been rendered, for whoever wants to know what it costs."""

    @property
    def watchers(self) -> int:
        return sum(len(topic.watchers) for topic in self._topics.values())

    async def keep_rendering(self) -> None:
        while True:
            spent = await self._render_due()
            await asyncio.sleep(max(TICK - spent, spent * (SHARE - 1), 0.01))

    async def _render_due(self) -> float:
        """What is due, the most urgent first, for a moment; how long that took. The rest has its turn in the next."""
        began = time.monotonic()
        for topic in sorted(filter(self._is_due, self._topics.values()), key=_Topic.urgency, reverse=True):
            await self._refresh(topic)
            topic.cost = time.monotonic() - topic.rendered_at
            if time.monotonic() - began > AT_A_TIME:
                break
        return time.monotonic() - began

    def watch(self, view: View, build: Build, who: str = EVERYONE) -> AsyncGenerator[bytes, None]:
        """Server-sent events for one open page: first everything, then what changes. TooManyWatchers if so.

        `who` looks at it, and leaves places for others.
        """
        if words := self._shortage(view, who):
            raise TooManyWatchers(words)
        return self._watched(view, build, who)

    def _shortage(self, view: View, who: str) -> str:
        is_new = view not in self._topics
        if self.watchers >= MOST_WATCHERS:
            return f"too many pages are open: {self.watchers}"
        if is_new and len(self._topics) >= MOST_TOPICS:
            return f"too many different pages are open: {len(self._topics)}"
        own = [sum(each.who == who for each in topic.watchers) for topic in self._topics.values()]
        if who == EVERYONE:
            return ""
        if sum(own) >= MOST_WATCHERS // EACH:
            return f"too many of your pages are open: {sum(own)}"
        kinds = sum(map(bool, own))
        return f"too many different pages of yours are open: {kinds}" if is_new and kinds >= MOST_TOPICS // EACH else ""

    async def _watched(self, view: View, build: Build, who: str) -> AsyncGenerator[bytes, None]:
        if self._shortage(view, who):  # others have come in between; whoever comes back is told
            return
        topic = self._topics.setdefault(view, _Topic(view, build))
        watcher = _Watcher(topic.parts, who)
        topic.watchers.add(watcher)
        try:
            with self._fleet.watched():
                yield b": a page of E3\nretry: 1000\n\n"
                while not self._is_over:
                    if not await SYSTEM_CLOCK.wait_for(watcher.wakes, HEARTBEAT):
                        yield self._beat(topic)
                        continue
                    watcher.wakes.clear()
                    if watcher.trouble:
                        yield watcher.trouble
                        watcher.trouble = b""
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
        """A sign of life, which does not hide that there is more to tell than was told."""
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
            self._tell_trouble(topic, "gone", str(error))
        except StoreError as error:
            self._tell_trouble(topic, "trouble", str(error))
        except Exception:
            log.exception("rendering %s failed", topic.view.path)
            self._tell_trouble(topic, "trouble", "the page could not be drawn: the log of e3 says more")
        else:
            topic.parts |= changed
            for watcher in topic.watchers if changed else ():
                watcher.parts |= changed
                watcher.wakes.set()

    def _render(self, topic: _Topic, fragments: tuple[Fragment, ...]) -> dict[str, _Part]:
        """Those parts that look different now. It runs beside the loop, so it adds nothing to the topic itself."""
        changed: dict[str, _Part] = {}
        for fragment in fragments:
            before = topic.parts.get(fragment.id)
            if before is not None and fragment.key is not None and before.key == fragment.key:
                continue
            html = render_fragment(fragment, topic.view)
            self.rendered += 1
            if before is not None and before.html == html:
                before.key = fragment.key
                continue
            sent = json.dumps({"id": fragment.id, "html": html}, ensure_ascii=False)
            changed[fragment.id] = _Part(fragment.key, html, sent.encode("utf-8", "backslashreplace"))
        return changed

    def _tell_trouble(self, topic: _Topic, kind: str, words: str) -> None:
        for watcher in topic.watchers:
            watcher.trouble = f"event: {kind}\ndata: {json.dumps({'message': words})}\n\n".encode()
            watcher.wakes.set()

    async def close(self) -> None:
        """Every open page is told that this is the end for now."""
        self._is_over = True
        for topic in self._topics.values():
            for watcher in topic.watchers:
                watcher.wakes.set()
