"""Reading untrusted JSON: the wanted type, or a ProtocolError. `optional_` functions return an empty value instead."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from comfyui_agent.comfy.errors import ProtocolError

T = TypeVar("T", dict[str, Any], list[Any], str)

NAMES = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}


def expect(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, kind):
        raise ProtocolError(f"{where} should be {NAMES[kind]}, not {NAMES.get(type(value), 'a number')}")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ProtocolError(f"{where} should be a number, not {NAMES[type(value)]}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ProtocolError(f"{where} should be a finite number")
    return found


def optional_number(value: Any) -> float | None:
    try:
        return number(value, "")
    except ProtocolError:
        return None


def optional_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def optional_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def optional_text(value: Any) -> str:
    """A text that any file and database takes."""
    if not isinstance(value, str):
        return ""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "�").encode("utf-8", "replace").decode()


def shown(value: Any, longest: int = 200) -> str:
    """A text for messages: one line, not too long. Empty if there is none."""
    text = value[: longest * 4] if isinstance(value, str) else ""
    printable = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(printable.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
