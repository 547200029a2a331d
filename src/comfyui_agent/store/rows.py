"""From rows to records. People write rows by hand, so values of other types are converted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, TypeVar, get_type_hints

from comfyui_agent.store.port import Row

T = TypeVar("T")
TIME_LENGTH = len("2025-08-09 12:30:01.250")
TIMES_KEPT = 4_096
"""Times that are remembered as text: lists show the same rows again and again."""


@lru_cache(TIMES_KEPT)
def time_text(moment: datetime) -> str:
    """A time as people and programs read it: UTC, to the millisecond."""
    return moment.isoformat(" ", "milliseconds")[:TIME_LENGTH]


def text(value: Any) -> str | None:
    """The text in a column. A time becomes text, as does what someone wrote by hand in another type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return time_text(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def whole_number(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _parsed(value: Any, kind: type[T]) -> T:
    """The JSON in a column. Empty if someone wrote something else there."""
    try:
        found = json.loads(value) if value else kind()
    except (TypeError, ValueError, RecursionError):
        return kind()
    return found if isinstance(found, kind) else kind()


def parsed_object(value: Any) -> dict[str, Any]:
    return _parsed(value, dict)


def paths_in(value: Any) -> tuple[str, ...]:
    """The paths in `outputs`."""
    return tuple(path for path in _parsed(value, list) if isinstance(path, str))


CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    str: lambda value: value if isinstance(value, str) else text(value) or "",
    str | None: text,
    int: lambda value: whole_number(value) or 0,
    int | None: whole_number,
    float | None: lambda value: value if isinstance(value, (int, float)) else None,
    tuple[str, ...]: paths_in,
    frozenset[str]: lambda value: frozenset((text(value) or "").split()),
    Mapping[str, Any]: parsed_object,
}


@cache
def _converters(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    """What makes the value of each field from its column. Enumerations and bool convert by themselves."""
    hints = get_type_hints(kind)
    types = [(field.name, getattr(hints[field.name], "__supertype__", hints[field.name])) for field in fields(kind)]
    return [(name, CONVERTERS.get(type_, type_)) for name, type_ in types]


def record(kind: type[T], row: Row, /, **facts: Any) -> T:
    """A dataclass whose fields are columns of a row. `facts` are fields that have no column of their name."""
    found = _converters(kind)  # type: ignore[arg-type]  # mypy takes classes of a type variable for unhashable
    return kind(**{name: convert(row[name]) for name, convert in found if name in row and name not in facts}, **facts)
