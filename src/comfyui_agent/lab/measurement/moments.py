"""Moments as reports write them."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def utc_text(moment: float | None = None) -> str:
    """`2026-11-15T23:10:01.250Z`: seconds since the epoch, or now, in UTC as ISO 8601 writes it."""
    at = datetime.fromtimestamp(time.time() if moment is None else moment, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
