"""Which values go together. Runs on Python 3.9.

The functions take the values of each parameter, or parameters that have them as `parsed_values`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.domain.combinations import cartesian as cartesian_values
from comfyui_agent.domain.combinations import linear_zip as zip_values


def cartesian(parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Each value with each value of the others, the last parameter fastest; ValueError if a parameter is empty."""
    return cartesian_values([_values_of(each) for each in parameters])


def linear_zip(parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """First with first, second with second. A single value is repeated; ValueError if lengths differ."""
    return zip_values([_values_of(each) for each in parameters])


def _values_of(parameter: Any) -> Any:
    return list(parameter["parsed_values"]) if isinstance(parameter, Mapping) else parameter
