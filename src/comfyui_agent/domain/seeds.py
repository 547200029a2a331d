"""Random seeds. Runs on Python 3.9."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable

SEEDS = 2**32
"""Every node takes seeds below this."""


def draw_seeds(count: int, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> list[int]:
    """As many different seeds as asked for."""
    found: dict[int, None] = {}
    while len(found) < count:
        missing = count - len(found)
        found.update(dict.fromkeys(struct.unpack(f"<{missing}I", random_bytes(4 * missing))))
    return list(found)
