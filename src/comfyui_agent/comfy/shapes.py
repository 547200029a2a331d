"""Reading untrusted JSON: each function returns the wanted type or raises ProtocolError."""

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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{where} should be a number, not {_named(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ProtocolError(f"{where} should be a finite number")
    return found


def whole(value: Any, where: str) -> int:
    return int(number(value, where))


def optional_text(value: Any) -> str:
    """A text that any file and database takes, or an empty one if there is none."""
    return value.replace("\0", "�").encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def shown(value: Any, longest: int = 200) -> str:
    """A text for messages: one line, not too long. Empty if there is none."""
    text = value[: longest * 4] if isinstance(value, str) else ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def can_be_sent(text: str) -> bool:
    """Whether a text can be encoded. JSON may hold lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def optional_number(value: Any) -> float | None:
    try:
        return number(value, "")
    except ProtocolError:
        return None


def _named(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
