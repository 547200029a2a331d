"""Writing a member's values into the workflow in its files, so that ComfyUI can load it again. Runs on Python 3.9. The
editor's format lists values without names: one is changed only where the list has the value of the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SEEDS = ("seed", "noise_seed")
AFTER_A_SEED = ("fixed", "increment", "decrement", "randomize", "increment-wrap")
Changes = Mapping[tuple[str, str], tuple[Any, Any]]
"""Node and input → the old and the new value."""


def show_values(document: Mapping[str, Any], changes: Changes) -> bool:
    """Put new values into the workflow of a request, all of them or none; returns whether it did. Never raises."""
    places = []
    try:
        workflow = document["extra_data"]["extra_pnginfo"]["workflow"]
        for (node_id, input_name), (before, after) in changes.items():
            node = _node_at(workflow, node_id)
            values = node["widgets_values"]
            key = _position(node["inputs"], values, input_name) if isinstance(values, list) else input_name
            if before is None or type(values[key]) is not type(before) or values[key] != before:
                return False
            places.append((values, key, after))
    except (LookupError, TypeError, AttributeError, StopIteration):  # another format, or no such node or input
        return False
    for values, key, after in places:
        values[key] = after
    return True


def _node_at(workflow: Any, node_id: str) -> Any:
    """A node by its id in a prompt: `98:6` is node 6 of subgraph 98, if no other node uses that subgraph."""
    nodes = workflow["nodes"]
    *above, last = node_id.split(":")
    for part in above:
        subgraphs = workflow["definitions"]["subgraphs"]
        used = _by_id(nodes, part)["type"]
        every_list = [workflow["nodes"], *(each["nodes"] for each in subgraphs)]
        if sum(node["type"] == used for listed in every_list for node in listed) != 1:
            raise LookupError(used)
        nodes = _by_id(subgraphs, used)["nodes"]
    return _by_id(nodes, last)


def _by_id(listed: Any, wanted: str) -> Any:
    return next(each for each in listed if str(each.get("id")) == wanted)


def _position(inputs: Any, values: list[Any], input_name: str) -> int:
    """Where the value of an input is. Behind a seed there may be the choice what follows it."""
    at = 0
    for each in inputs:
        name = (each.get("widget") or {}).get("name")
        if name == input_name and each.get("link") is None:
            return at
        if name is not None:
            is_choice_next = name in SEEDS and values[at + 1 : at + 2] and values[at + 1] in AFTER_A_SEED
            at += 2 if is_choice_next else 1
    raise LookupError(input_name)
