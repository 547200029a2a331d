"""The prompt sent for a job: the template, the job's values, and values filled in for the server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.jobs import Attempt, Job, Template
from comfyui_agent.domain.node_classes import MODEL_ENDINGS
from comfyui_agent.domain.prompts import (
    SEED_INPUTS,
    Graph,
    NoSuchPlace,
    class_of,
    inputs_of,
    natural_order,
    place,
    split_place,
)
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import parsed

OF_GRAPH = "graph"
"""The key in `Attempt.sent` that is no place: the hash of the graph with the job's values."""
NEGATIVE = re.compile("negative", re.IGNORECASE)
PROMPT = re.compile("prompt|^text$|positive", re.IGNORECASE)
ENCODES_TEXT = re.compile("TextEncode")


@dataclass(frozen=True)
class Given:
    """A value of the workflow, with its name and place."""

    name: str
    value: Any
    place: str
    node: str
    """`text of node 6, CLIPTextEncode`."""


@dataclass(frozen=True)
class Sending:
    """The prompt of a job. `attempt` is the run that sent it, None if it was not sent yet."""

    graph: Graph
    given: Sequence[Given]
    models: Sequence[str]
    attempt: Attempt | None

    @property
    def seeds(self) -> dict[str, int]:
        """The seeds that it is made with, by place."""
        return {
            where: value for where, name, value in _inputs(self.graph) if name in SEED_INPUTS and type(value) is int
        }


def filled_in(plain: Graph, sent: Graph) -> dict[str, Any]:
    """By place, the inputs in which the sent graph differs from the plain one, and the hash of the plain one."""
    return {OF_GRAPH: _hash_of(plain)} | {
        f"{node_id}.{name}": value
        for node_id in sent
        if sent[node_id] is not plain.get(node_id)
        for name, value in inputs_of(sent, node_id).items()
        if value != inputs_of(plain, node_id).get(name)
    }


def describe(
    job: Job, inputs: Mapping[str, Any], attempts: Sequence[Attempt], graph: Graph, names: Mapping[str, str]
) -> Sending:
    """The prompt of the last recorded run, or the one that would be sent. `inputs` and `names` are by place."""
    if job.status is JobStatus.FAILED and not job.template_hash and not attempts:
        return Sending({}, (), (), None)  # it was rejected before it became a prompt
    plain = _placed(graph, inputs)
    attempt = next((each for each in reversed(attempts) if each.sent), None)
    sent = parsed(attempt.sent) if attempt else None
    filled = dict(sent) if isinstance(sent, dict) else {}
    if filled.pop(OF_GRAPH, None) not in (None, _hash_of(plain)):  # the job was changed since
        attempt, filled = None, {}
    whole = _placed(plain, filled)
    return Sending(whole, _given(whole, inputs, names), _models(whole), attempt)


def _hash_of(graph: Graph) -> str:
    return Template.of(graph).hash[:16]


def _placed(graph: Graph, values: Mapping[str, Any]) -> Graph:
    try:
        return place(graph, values)
    except NoSuchPlace:  # the template changed
        return graph


def _given(graph: Graph, inputs: Mapping[str, Any], names: Mapping[str, str]) -> list[Given]:
    """All inputs, with prompt and seed first. If no input is one, those of the template are shown."""
    found = [_described(graph, where, value, names) for where, value in inputs.items()]
    others = [(where, name, value) for where, name, value in _inputs(graph) if where not in inputs]
    if not any(_rank(each) == 0 for each in found):
        texts = [(where, value) for where, name, value in others if name == "text" and isinstance(value, str)]
        encoded = [each for each in texts if ENCODES_TEXT.search(class_of(graph, each[0].partition(".")[0]))]
        found += [_described(graph, where, value, names) for where, value in encoded]
    if not any(_rank(each) == 1 for each in found):
        seeds = [(where, value) for where, name, value in others if name in SEED_INPUTS and isinstance(value, int)]
        found += [_described(graph, where, value, names) for where, value in seeds]
    known = {where: number for number, where in enumerate(names)}
    return sorted(found, key=lambda each: (_rank(each), known.get(each.place, len(known))))


def _described(graph: Graph, where: str, value: Any, names: Mapping[str, str]) -> Given:
    try:
        node_id, name = split_place(where)
    except NoSuchPlace:
        return Given(names.get(where, where), value, where, "")
    kind = class_of(graph, node_id)
    return Given(names.get(where, where), value, where, f"{name} of node {node_id}, {kind}" if kind else where)


def _rank(given: Given) -> int:
    name = given.place.rpartition(".")[2]
    if name in SEED_INPUTS or given.name in SEED_INPUTS:
        return 1
    is_text = PROMPT.search(given.name) or PROMPT.search(name)
    return 0 if is_text and not NEGATIVE.search(given.name) else 2


def _inputs(graph: Graph) -> list[tuple[str, str, Any]]:
    """Place, name and value of every input, in the order of the nodes."""
    found = ((node_id, inputs_of(graph, node_id)) for node_id in natural_order(graph))
    return [(f"{node_id}.{name}", name, value) for node_id, inputs in found for name, value in inputs.items()]


def _models(graph: Graph) -> list[str]:
    """Each model file that the graph names, once."""
    texts = [value for *_, value in _inputs(graph) if isinstance(value, str)]
    return list(dict.fromkeys(text for text in texts if text.lower().endswith(MODEL_ENDINGS)))
