"""The workflow in a member's files, as its own: dragged back into ComfyUI it renders that member. Runs on Python 3.9.

It is the editor's format, where the values of a node stand in a list without names. A value is changed only where the
list has, at the place that its node's inputs tell, the value that the prompt had: what is not sure stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SEEDS = ("seed", "noise_seed")
AFTER_A_SEED = ("fixed", "increment", "decrement", "randomize", "increment-wrap")
Changes = Mapping[tuple[str, str], tuple[Any, Any]]
"""Node and input → what was there, and what is there now."""


def show_values(document: Mapping[str, Any], changes: Changes) -> None:
    """Put the values of a member into the workflow that its request carries, in place. Never raises."""
    workflow: Any = document
    for key in ("extra_data", "extra_pnginfo", "workflow"):
        workflow = workflow.get(key) if isinstance(workflow, Mapping) else None
    nodes = workflow.get("nodes") if isinstance(workflow, Mapping) else None
    by_id = (
        {str(node.get("id")): node for node in nodes or () if isinstance(node, dict)} if isinstance(nodes, list) else {}
    )
    for (node_id, input_name), (before, after) in changes.items():
        if node_id in by_id:
            _show(by_id[node_id], input_name, before, after)


def _show(node: Mapping[str, Any], input_name: str, before: Any, after: Any) -> None:
    values = node.get("widgets_values")
    if isinstance(values, dict):
        if input_name in values and type(values[input_name]) is type(before) and values[input_name] == before:
            values[input_name] = after
        return
    inputs = node.get("inputs")
    if not isinstance(values, list) or not isinstance(inputs, list):
        return
    place = 0
    for each in inputs:
        widget = each.get("widget") if isinstance(each, Mapping) else None
        name = widget.get("name") if isinstance(widget, Mapping) else None
        if name is None:
            continue
        if name == input_name:
            if place < len(values) and type(values[place]) is type(before) and values[place] == before:
                values[place] = after
            return
        place += 1
        if name in SEEDS and place < len(values) and values[place] in AFTER_A_SEED:
            place += 1
