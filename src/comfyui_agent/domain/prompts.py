"""Prompts: the graphs that ComfyUI runs, the values at their places, and their ids."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NewType

from comfyui_agent.domain.node_classes import ONE_PICTURE
from comfyui_agent.domain.texts import json_text, listed

PromptId = NewType("PromptId", str)
Graph = Mapping[str, Any]
"""ComfyUI's API format: node id → `{class_type, inputs, _meta?}`."""

CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
SAVES_UNDER = "filename_prefix"
SEED_INPUTS = ("seed", "noise_seed")
DIGITS = "0123456789"
LONGEST_LIFTED, MOST_LIFTED = 4_000, 60_000
MAPPINGS = dict, Mapping
"""Nearly all are a dict, which is told much faster."""


class NoSuchPlace(Exception):
    """The workflow has no such node or input."""


def mint_prompt_id() -> PromptId:
    """A new id: a lower-case uuid4, the one form that every server version takes."""
    digits = os.urandom(16).hex()  # the standard library takes three times as long
    variant = "89ab"[int(digits[16], 16) % 4]
    return PromptId(f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}")


def check_prompt_id(text: str) -> PromptId:
    if not CANONICAL.fullmatch(text):
        raise ValueError(f"{text!r} is not a lower-case uuid4: mint one with mint_prompt_id()")
    return PromptId(text)


def is_editor_format(document: Graph) -> bool:
    """Whether this is a workflow as ComfyUI's editor saves it, not a graph to run."""
    return isinstance(document.get("nodes"), list) and "class_type" not in document


def inputs_of(graph: Graph, node_id: str) -> Mapping[str, Any]:
    """The inputs of a node, empty if the graph is not well formed."""
    node = graph.get(node_id)
    inputs = node.get("inputs") if isinstance(node, MAPPINGS) else None
    return inputs if isinstance(inputs, MAPPINGS) else {}


def is_link(value: Any) -> bool:
    """Whether an input is connected to the output of a node: `["4", 1]`."""
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) in (int, float)


def class_of(graph: Graph, node_id: str) -> str:
    node = graph.get(node_id)
    name = node.get("class_type") if isinstance(node, MAPPINGS) else None
    return name if isinstance(name, str) else ""


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


def lift_values(graph: Graph) -> tuple[dict[str, Any], dict[str, Any]]:
    """A graph without its plain values, and these by place. So prompts that differ in a seed share a template.

    Long values stay in the graph, and so do those of nodes whose id holds a dot.
    """
    bare, values = dict(graph), dict[str, Any]()
    for node_id in graph:
        inputs = inputs_of(graph, node_id) if node_id and "." not in node_id else {}
        plain = {name: value for name, value in inputs.items() if name and _is_short(value)}
        if plain:
            bare[node_id] = {**graph[node_id], "inputs": {**inputs, **dict.fromkeys(plain)}}
            values |= {f"{node_id}.{name}": value for name, value in plain.items()}
    return (bare, values) if len(json_text(values)) <= MOST_LIFTED else (dict(graph), {})


def _is_short(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= LONGEST_LIFTED)


def saving_nodes(graph: Graph) -> dict[str, str]:
    """The nodes with a fixed file name prefix: node id → prefix."""
    found = {}
    for node_id in graph:
        prefix = inputs_of(graph, node_id).get(SAVES_UNDER)
        if isinstance(prefix, str):
            found[node_id] = prefix
    return found


def leading_to(graph: Graph, node_ids: Iterable[str]) -> frozenset[str]:
    """These nodes and all nodes before them."""
    found: set[str] = set()
    waiting = [node_id for node_id in node_ids if node_id in graph]
    while waiting:
        node_id = waiting.pop()
        if node_id in found:
            continue
        found.add(node_id)
        links = [value for value in inputs_of(graph, node_id).values() if isinstance(value, list) and len(value) == 2]
        waiting += [link[0] for link in links if isinstance(link[0], str) and link[0] in graph]
    return frozenset(found)


def makes_one_picture(graph: Graph) -> bool:
    """Whether a graph makes one picture: all of its nodes are known, and none makes a batch."""
    return all(
        class_of(graph, node_id) in ONE_PICTURE and inputs_of(graph, node_id).get("batch_size", 1) == 1
        for node_id in graph
    )


def avoiding_cache(graph: Graph, token: str) -> dict[str, Any]:
    """A copy of a graph that the server's cache does not answer: each node gets an input that it does not declare."""
    fresh = {}
    for node_id, node in graph.items():
        inputs = {**inputs_of(graph, node_id), "e3_attempt": token}
        fresh[node_id] = {**node, "inputs": inputs} if isinstance(node, Mapping) else node
    return fresh


def natural_order(node_ids: Iterable[str]) -> list[str]:
    """Sort node ids as people count: 2 before 10, `98:6` after `98`."""
    return sorted(node_ids, key=natural_key)


def natural_key(text: str) -> list[tuple[int, int, str]]:
    """A sort key in which runs of digits compare as numbers of any length."""
    parts = [part for part in re.split(r"([0-9]+)", text) if part]
    return [(0, len(part.lstrip("0")), part.lstrip("0")) if part[0] in DIGITS else (1, 0, part) for part in parts]
