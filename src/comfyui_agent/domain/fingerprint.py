"""Fingerprints: two jobs with the same one would give the same result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from comfyui_agent.domain.node_classes import takes_file
from comfyui_agent.domain.prompts import Graph, class_of, inputs_of
from comfyui_agent.domain.sent_prompt import models_of
from comfyui_agent.domain.texts import json_text


def fingerprint_of(
    graph: Graph, kept: Mapping[str, str], models: Mapping[str, str], version: str, output_node: str | None
) -> str | None:
    """The fingerprint of a graph with its values at one server. None if something that decides the result is not known.

    `kept`: input files by place, named by their digests. `models`: what tells each model file of the server from
    another one of that name.
    """
    named = models_of(graph)
    if not version or not set(named) <= models.keys() or _loads_unknown_file(graph, kept):
        return None
    nodes = {node_id: [class_of(graph, node_id), inputs_of(graph, node_id)] for node_id in graph}
    facts = [nodes, sorted(kept.items()), [[name, models[name]] for name in named], version, output_node]
    return hashlib.sha256(json_text(facts, sort=True).encode()).hexdigest()


def _loads_unknown_file(graph: Graph, kept: Mapping[str, str]) -> bool:
    """Whether a node loads a file that lies at the server: nobody knows its bytes."""
    return any(
        isinstance(value, str) and takes_file(class_of(graph, node_id), name) and f"{node_id}.{name}" not in kept
        for node_id in graph
        for name, value in inputs_of(graph, node_id).items()
    )
