"""Seeds that nobody chose."""

from __future__ import annotations

import secrets

SEEDS = 2**32
"""More than enough to choose from, and no node takes less."""


def draw_seeds(count: int) -> list[int]:
    """So many different ones."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[secrets.randbelow(SEEDS)] = None
    return list(found)
