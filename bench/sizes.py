"""How large the measurements are: whole, or as small as they run at all (`bench/run.py --quick`)."""

from __future__ import annotations

import os
from typing import TypeVar

Number = TypeVar("Number", int, float)

QUICK = bool(os.environ.get("BENCH_QUICK"))


def size(whole: Number, quick: Number) -> Number:
    return quick if QUICK else whole
