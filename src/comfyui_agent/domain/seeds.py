"""Seeds that nobody chose. Runs on Python 3.9."""

from __future__ import annotations

import secrets
import struct

SEEDS = 2**32
"""More than enough to choose from, and no node takes less."""
BYTES = 4


def draw_seeds(count: int) -> list[int]:
    """So many different ones."""
    found: dict[int, None] = {}
    while len(found) < count:
        missing = count - len(found)
        found.update(dict.fromkeys(struct.unpack(f"<{missing}I", secrets.token_bytes(BYTES * missing))))
    return list(found)
