"""Rows as scripts read them: columns that hold JSON are given as what it says."""

from __future__ import annotations

import json
from typing import Any


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def parsed(text: str | None) -> Any:
    """What a column says; the text itself where someone wrote something else."""
    try:
        return None if text is None else json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text
