"""Node definitions and lists of several servers as one: what any server offers is offered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from comfyui_agent.wire.prompts import Json

COMBO = "COMBO"
SECTIONS = ("required", "optional")


def united_definitions(answers: Iterable[Mapping[str, Any]]) -> Json:
    """The definitions of all classes. Where servers differ, the first counts, and the choices of all."""
    together: Json = {}
    for answer in answers:
        for name, definition in answer.items():
            known = together.setdefault(name, definition)
            if known is not definition and known != definition:
                together[name] = _united(known, definition)
    return together


def united_lists(answers: Iterable[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Names by folder."""
    together: dict[str, list[str]] = {}
    for answer in answers:
        for folder, names in answer.items():
            together[folder] = _joined(together.get(folder, []), names)
    return together


def _united(known: Any, other: Any) -> Any:
    """A copy of a definition with the choices of another."""
    if not isinstance(known, dict) or not isinstance(known.get("input"), dict):
        return known
    inputs = dict(known["input"])
    for section in SECTIONS:
        ours, theirs = inputs.get(section), _at(other, "input", section)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            inputs[section] = {name: _united_input(ours[name], theirs.get(name)) for name in ours}
    return {**known, "input": inputs}


def _united_input(known: Any, other: Any) -> Any:
    """An input is `[[choices], options]`, or `["COMBO", {"options": [choices]}]` in newer versions."""
    ours, theirs = _choices(known), _choices(other)
    if ours is None or theirs is None or ours == theirs:
        return known
    joined = _joined(ours, theirs)
    return [known[0], {**known[1], "options": joined}] if known[0] == COMBO else [joined, *known[1:]]


def _choices(declared: Any) -> list[Any] | None:
    if not isinstance(declared, list) or not declared:
        return None
    found = _at(declared[1] if len(declared) > 1 else None, "options") if declared[0] == COMBO else declared[0]
    return found if isinstance(found, list) else None


def _joined(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Both lists in order, without what stands in the first already."""
    known = set(map(repr, first))
    return [*first, *(each for each in second if repr(each) not in known)]


def _at(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree
