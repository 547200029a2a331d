"""Some of many cases in make test, all of them in make faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(cases: Iterable[Any], one_in: int) -> list[Any]:
    """Every so many-th case as it is, from the first on; the others are marked slow."""
    return [case if number % one_in == 0 else _slow(case) for number, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if hasattr(case, "values") and hasattr(case, "marks"):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.slow])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
