"""Putting a job's values into its workflow template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.prompts import Graph, inputs_of
from comfyui_agent.domain.texts import listed


class NoSuchPlace(Exception):
    """The workflow has no such node or input."""


def split_place(place: str) -> tuple[str, str]:
    """`98:6.text` is the input `text` of node `98:6`. Input names may hold dots, node ids may not."""
    node_id, dot, name = place.partition(".")
    if not (node_id and dot and name):
        raise NoSuchPlace(f"{place!r} is not a place: write NODE.input, such as 6.text")
    return node_id, name


def place(graph: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a graph with each value at its place. NoSuchPlace if a node is missing."""
    placed = dict(graph)
    for where, value in values.items():
        node_id, name = split_place(where)
        node = placed.get(node_id)
        if not isinstance(node, Mapping):
            raise NoSuchPlace(f"{where!r}: the workflow has no node {node_id!r}; it has {listed(list(graph), 8)}")
        placed[node_id] = {**node, "inputs": {**inputs_of(placed, node_id), name: value}}
    return placed
