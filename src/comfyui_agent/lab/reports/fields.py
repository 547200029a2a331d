"""Field types of reports.

Reports may be old, or written by another program. A value of the wrong type reads as unknown; it is not an error.
"""

from __future__ import annotations

import math
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

from comfyui_agent.domain.texts import whole

DIGITS = 6
LONGEST_TEXT = 1_000_000
PartType = TypeVar("PartType", bound="Part")


class Part(BaseModel):
    """A JSON object of a report. Keys that this version does not know are kept."""

    model_config = ConfigDict(extra="allow")

    def as_json(self) -> dict[str, Any]:
        """The JSON that is written: exactly the keys that were set."""
        return self.model_dump(mode="json", exclude_unset=True)


def as_number(value: Any) -> int | float | None:
    """A finite number, floats rounded to microseconds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        return None
    return (round(value, DIGITS) if isinstance(value, float) else value) if is_finite else None


def as_moment(value: Any) -> float | None:
    """Seconds since 1970 of a time as reports and the metrics log write it. UTC where no zone is named."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(value: Any) -> int | float | None:
    number = as_number(value)
    return None if number is None or number < 0 else number


def _count(value: Any) -> int:
    return max(0, int(as_number(value) or 0))


def _required_count(value: Any) -> int:
    if as_number(value) is None:
        raise ValueError("a number is needed")
    return _count(value)


def _text_or_none(value: Any) -> str | None:
    if isinstance(value, Enum):
        value = value.value
    return whole(value, LONGEST_TEXT) if isinstance(value, str) else None


def _text(value: Any) -> str:
    return _text_or_none(value) or ""


def _objects(value: Any) -> list[Any]:
    return [each for each in value if isinstance(each, (dict, Part))] if isinstance(value, (list, tuple)) else []


def _texts(value: Any) -> list[str]:
    return [each for each in map(_text, value) if each] if isinstance(value, (list, tuple)) else []


def _or_nothing(value: Any) -> Any:
    return value if isinstance(value, (dict, Part)) else None


def _or_empty(value: Any) -> Any:
    return value if isinstance(value, (dict, Part)) else {}


def _flag(value: Any) -> bool:
    return value is True


Number = Annotated[int | float | None, BeforeValidator(as_number)]
Seconds = Annotated[int | float | None, BeforeValidator(_seconds)]
Count = Annotated[int, BeforeValidator(_count)]
RequiredCount = Annotated[int, BeforeValidator(_required_count)]
Text = Annotated[str, BeforeValidator(_text)]
OptionalText = Annotated[str | None, BeforeValidator(_text_or_none)]
Texts = Annotated[list[str], BeforeValidator(_texts)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Facts = Annotated[dict[str, Any], BeforeValidator(_or_empty)]
ListOf = Annotated[list[PartType], BeforeValidator(_objects)]
Optionally = Annotated[PartType | None, BeforeValidator(_or_nothing)]
OrEmpty = Annotated[PartType, BeforeValidator(_or_empty)]
