"""Random seeds. Runs on Python 3.9."""

from __future__ import annotations

import random

SEEDS = 2**32
"""Every node takes seeds below this."""


def draw_seeds(count: int) -> list[int]:
    """As many different seeds as asked for."""
    return random.Random().sample(range(SEEDS), count)
