"""Copies of requests. Runs on Python 3.9."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

UNCHANGING = (str, int, float, bool, type(None))


def copy_of(value: Any) -> Any:
    """A copy all the way down: what is changed in it is changed nowhere else. Texts, which cannot change, are shared.

    A workflow may carry megabytes of text, and each member of a batch has its own copy of it.
    """
    if isinstance(value, dict):
        return {key: copy_of(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copy_of(each) for each in value]
    return value if isinstance(value, UNCHANGING) else deepcopy(value)
