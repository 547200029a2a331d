"""Wrong tokens, counted by the address that they came from."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST = 10
WINDOW_SECONDS = 60.0
MOST_ADDRESSES = 10_000


class Failures:
    """How often an address has shown a wrong token of late. Whoever shows a right one is not asked for this."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def note(self, address: str) -> float:
        """One more. The seconds until the next may be shown; 0 unless there were MOST of them before this one."""
        recent = self._recent(address)
        if len(recent) >= MOST:
            return WINDOW_SECONDS - (time.monotonic() - recent[0])
        self._failures[address] = [*recent, time.monotonic()]
        self._failures.move_to_end(address)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)
        return 0.0

    def _recent(self, address: str) -> list[float]:
        since = time.monotonic() - WINDOW_SECONDS
        return [at for at in self._failures.get(address, ()) if at > since]
