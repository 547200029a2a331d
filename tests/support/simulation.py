"""Parts of the simulator in process."""

from __future__ import annotations

import threading
from collections.abc import Callable


class MovedTime(threading.Event):
    """An interrupt flag on which nobody waits: `waits` has the seconds, and `then` is called after each of them."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._then = then

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self._then()
        return self.is_set()
