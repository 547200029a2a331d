"""Seconds that pass whatever happens to the wall clock, time asleep included where the system can tell."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
else:  # pragma: no cover - not Linux

    def now() -> float:
        return time.monotonic()
