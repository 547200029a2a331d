"""Which values go together. Runs on Python 3.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain import combinations

Values = Any
"""The values of a parameter; or the parameter, which has them as `parsed_values`."""


def cartesian(parameters: Sequence[Values]) -> list[tuple[Any, ...]]:
    """Each value with each value of the others, the last parameter fastest. ValueError if that cannot be."""
    return combinations.combine_lists([_values_of(each) for each in parameters], combinations.Mode.MATRIX)


def linear_zip(parameters: Sequence[Values]) -> list[tuple[Any, ...]]:
    """First with first, second with second; one value alone stays. ValueError if lengths differ."""
    return combinations.combine_lists([_values_of(each) for each in parameters], combinations.Mode.LINEAR)


def _values_of(parameter: Values) -> Sequence[Any]:
    return list(parameter["parsed_values"]) if isinstance(parameter, Mapping) else parameter
