"""Reading a report that may be old, cut or wrong: whatever is missing or odd is None or empty, and nothing raises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

LARGEST = 1e15
"""No quantity of a report is larger; what is, is no quantity, and would break a scale."""


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) <= LARGEST and math.isfinite(value) else None


def amount(value: Any) -> int:
    """A count; 0 if there is none."""
    return max(0, round(number(value) or 0))


def text(value: Any) -> str:
    """A text; nothing for None and for what is no plain value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) if isinstance(value, (str, int)) else ""


def part(value: Any) -> Mapping[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The mappings in a list."""
    return [row for row in items(value) if isinstance(row, Mapping)]


def texts(value: Any) -> list[str]:
    """The texts in a list that say something."""
    return [said for said in map(text, items(value)) if said.strip()]


def items(value: Any) -> Sequence[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, (list, tuple)) else ()


def moment(value: Any) -> datetime | None:
    """A point in time as reports write it, in UTC."""
    try:
        found = datetime.fromisoformat(text(value).replace("Z", "+00:00"))
        return found.astimezone(timezone.utc) if found.tzinfo else found.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        return None
