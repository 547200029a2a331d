"""Parts of reports, and the types of their fields. Reports may be old, or written by another program: a value of the
wrong type reads as unknown."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from comfyui_agent.domain.texts import whole

DIGITS = 6
LONGEST_TEXT = 1_000_000


class Part(BaseModel):
    """A JSON object of a report. Keys that this version does not know are kept."""

    model_config = ConfigDict(extra="allow")

    @field_validator("*", mode="wrap")
    @classmethod
    def _read(cls, value: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
        """The value, or the default of the field where the value is of the wrong type."""
        try:
            return read(value)
        except ValidationError:
            field = cls.model_fields[info.field_name or ""]
            if field.is_required():
                raise
            return field.get_default(call_default_factory=True)

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


def _as_text(value: Any) -> Any:
    value = value.value if isinstance(value, Enum) else value
    return whole(value, LONGEST_TEXT) if isinstance(value, str) else value


Number = Annotated[int | float | None, BeforeValidator(as_number)]
Seconds = Annotated[Annotated[int | float, Field(ge=0)] | None, BeforeValidator(as_number)]
Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, BeforeValidator(_as_text)]
OptionalText = Annotated[str | None, BeforeValidator(_as_text)]
Flag = Annotated[bool, Field(strict=True)]
Facts = dict[str, Any]
