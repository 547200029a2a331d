"""Subscribers to events in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable

from comfyui_agent.domain.events import Event

log = logging.getLogger(__name__)

Subscriber = Callable[[Event], None]


class Bus:
    """Passes each event to each subscriber in order. An error of one does not stop the others."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on. Returns a function that ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def tell(self, event: Event) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(event)
            except Exception:
                log.exception("a subscriber failed over %s", event.name)
