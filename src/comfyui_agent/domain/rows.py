"""JSON columns of rows, parsed for scripts."""

from __future__ import annotations

import json
from typing import Any


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def parsed(text: str | None) -> Any:
    """The value of a JSON column, or its text if it is not JSON."""
    try:
        return None if text is None else json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text
