"""Which values go together, given as lists or as parameters with `parsed_values`. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.combinations import Mode, combine_lists


def cartesian(parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each value with each value of the others, the last parameter fastest. ValueError if that cannot be."""
    return combine_lists([_values_of(each) for each in parameters], Mode.MATRIX)


def linear_zip(parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """First with first, second with second; one value alone stays. ValueError if lengths differ."""
    return combine_lists([_values_of(each) for each in parameters], Mode.LINEAR)


def _values_of(parameter: Any) -> Any:
    return list(parameter["parsed_values"]) if isinstance(parameter, Mapping) else parameter
