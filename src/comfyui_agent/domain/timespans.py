"""Spans of time as people type them."""

from __future__ import annotations

import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
PATTERN = r"^[0-9]{1,6}[smhdw]$"
EXAMPLE = "a number and s, m, h, d or w, such as 30m, 12h or 1d"


def timespan(text: str) -> int:
    """The seconds of `30m`, `12h` or `1d`. ValueError if it is none of these."""
    if not re.fullmatch(PATTERN, text):
        raise ValueError(f"{text[:40]!r} is no span of time: write {EXAMPLE}")
    return int(text[:-1]) * UNITS[text[-1]]
