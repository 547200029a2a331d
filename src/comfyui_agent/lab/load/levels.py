"""A level of load in words."""

from __future__ import annotations


def level_words(level: float, unit: str) -> str:
    """`4 prompts at once`, `1 book at once`, `20 prompts/min`."""
    one = {"prompts at once": "prompt at once", "books at once": "book at once", "prompts/min": "prompt/min"}
    return f"{level:g} {one.get(unit, unit) if level == 1 else unit}".rstrip()
