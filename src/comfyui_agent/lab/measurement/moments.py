"""Moments as reports write them, and the clock of a run."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def utc_text(moment: float | None = None) -> str:
    """`2026-11-15T23:10:01.250Z`: seconds since the epoch, or now, in UTC as ISO 8601 writes it."""
    at = datetime.fromtimestamp(time.time() if moment is None else moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunClock:
    """The time of one run: seconds since it began, and the same moments by the calendar."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._began_at = time.time()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def seconds_of(self, moment: float) -> float:
        """A monotonic moment as seconds of this run."""
        return moment - self._began

    def seconds_of_time(self, moment: float) -> float:
        """Seconds since the epoch as seconds of this run."""
        return moment - self._began_at

    def at(self, seconds: float) -> str:
        return utc_text(self._began_at + seconds)
