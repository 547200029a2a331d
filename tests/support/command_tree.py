"""The commands of `e3`, each loaded."""

from __future__ import annotations

from typing import Any


def inner_commands(command: Any) -> dict[str, Any]:
    """The commands of a group by name; none if it is no group."""
    listed: dict[str, Any] = getattr(command, "commands", {})
    load = getattr(command, "load", listed.get)
    return {name: load(name) for name in listed}
