"""Reading JSON that may be anything: each function returns the asked-for type or says where it was not found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from comfyui_agent.comfy.errors import ProtocolError


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{where} should be an object, not {_named(value)}")
    return value


def sequence(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolError(f"{where} should be a list, not {_named(value)}")
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ProtocolError(f"{where} should be a text, not {_named(value)}")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ProtocolError(f"{where} should be a number, not {_named(value)}")
    return float(value)


def whole(value: Any, where: str) -> int:
    return int(number(value, where))


def optional_text(value: Any) -> str:
    """A text, or nothing where there is none: for what is shown, not relied upon."""
    return value if isinstance(value, str) else ""


def optional_number(value: Any) -> float | None:
    try:
        return number(value, "")
    except ProtocolError:
        return None


def _named(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return "NaN" if value != value else names.get(type(value), "a number")  # only NaN differs from itself
