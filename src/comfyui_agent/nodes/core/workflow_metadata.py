"""Writing a member's values into the workflow in its files, so that ComfyUI can load it again. Runs on Python 3.9.

The workflow is in the editor's format, where the values of a node are a list without names. A value is changed only if
the list has the value of the prompt at the position that the node's inputs give. Otherwise it stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SEEDS = ("seed", "noise_seed")
AFTER_A_SEED = ("fixed", "increment", "decrement", "randomize", "increment-wrap")
Changes = Mapping[tuple[str, str], tuple[Any, Any]]
"""Node and input → the old and the new value."""


def show_values(document: Mapping[str, Any], changes: Changes) -> bool:
    """Put new values into the workflow of a request, all of them or none; returns whether it did. Never raises."""
    workflow: Any = document
    for key in ("extra_data", "extra_pnginfo", "workflow"):
        workflow = workflow.get(key) if isinstance(workflow, Mapping) else None
    if not isinstance(workflow, Mapping):
        return False
    places = []
    for (node_id, input_name), (before, after) in changes.items():
        place = _place(_node_at(workflow, node_id), input_name, before)
        if place is None:
            return False
        places.append((*place, after))
    for values, key, after in places:
        values[key] = after
    return True


def _node_at(workflow: Mapping[str, Any], node_id: str) -> Mapping[str, Any]:
    """A node by its id in a prompt: `98:6` is node 6 of subgraph 98, if no other node uses that subgraph."""
    nodes = workflow.get("nodes")
    *above, last = node_id.split(":")
    for part in above:
        outer = _by_id(nodes, part)
        if sum(each.get("type") == outer.get("type") for each in _every_node(workflow)) != 1:
            return {}
        nodes = next((each.get("nodes") for each in _subgraphs(workflow) if each.get("id") == outer.get("type")), None)
    return _by_id(nodes, last)


def _by_id(nodes: Any, node_id: str) -> Mapping[str, Any]:
    listed = nodes if isinstance(nodes, list) else []
    return next((node for node in listed if isinstance(node, Mapping) and str(node.get("id")) == node_id), {})


def _subgraphs(workflow: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    definitions = workflow.get("definitions")
    listed = definitions.get("subgraphs") if isinstance(definitions, Mapping) else None
    return [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []


def _every_node(workflow: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    lists = [workflow.get("nodes"), *(each.get("nodes") for each in _subgraphs(workflow))]
    return [node for nodes in lists if isinstance(nodes, list) for node in nodes if isinstance(node, Mapping)]


def _place(node: Mapping[str, Any], input_name: str, before: Any) -> tuple[Any, Any] | None:
    """The values of a node and the key of an input in them; None if the value there is not that of the prompt."""
    values, inputs = node.get("widgets_values"), node.get("inputs")
    if isinstance(values, dict):
        return (values, input_name) if _is_same(values.get(input_name), before) else None
    if not isinstance(values, list) or not isinstance(inputs, list):
        return None
    at = 0
    for each in inputs:
        widget = each.get("widget") if isinstance(each, Mapping) else None
        name = widget.get("name") if isinstance(widget, Mapping) else None
        if name is None:
            continue
        if name == input_name:
            is_linked = each.get("link") is not None
            return (values, at) if not is_linked and at < len(values) and _is_same(values[at], before) else None
        at += 1
        if name in SEEDS and at < len(values) and values[at] in AFTER_A_SEED:
            at += 1
    return None


def _is_same(shown: Any, before: Any) -> bool:
    return before is not None and type(shown) is type(before) and bool(shown == before)
