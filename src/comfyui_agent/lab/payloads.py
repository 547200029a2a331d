"""The workflow that is sent to a measured server, made different for each prompt so that no cache answers it."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.comfy.definitions import choices_of
from comfyui_agent.config.workflows import Workflow, read_template
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.node_classes import MODEL_ENDINGS, takes_file
from comfyui_agent.domain.prompts import (
    SAVES_UNDER,
    SEED_INPUTS,
    Graph,
    class_of,
    inputs_of,
    leading_to,
    natural_order,
    place,
    saving_nodes,
)
from comfyui_agent.engine.intake.input_files import InputFiles, Unusable
from comfyui_agent.engine.server_inputs import FOLDER, first_model
from comfyui_agent.lab.reports.environment import WorkflowFacts

SEEDS = 2**31
"""The upper limit of many seed inputs."""
OWN_INPUT = "e3_load"
"""An input that no node declares. Servers do not pass it to the node, but it is part of their cache key."""
FOLDER_SIZE = 200
"""A save node lists its whole folder each time, so a full folder would slow the measurement."""
SAMPLES = ("book_small", "book_medium", "book_large")
MODEL = "v1-5-pruned-emaonly-fp16.safetensors"
"""The checkpoint in the samples, which is that of ComfyUI's default workflow."""
SHIPPED = Path(__file__).with_name("sample_payloads")
CHECKOUT = Path(__file__).parents[3] / "infra" / "comfyui" / "samples"
Place = tuple[str, str]
"""A node and one of its inputs."""


class PayloadError(Exception):
    """A workflow cannot be sent: what is wrong, and what to do."""


@dataclass(frozen=True)
class Payload:
    name: str
    graph: Graph
    digest: str
    outputs: frozenset[str] = frozenset()
    """The output nodes; known once the payload is fitted to a server."""
    pictures: Mapping[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What was changed to fit it to a server, for readers of the report."""

    @classmethod
    def of(cls, name: str, graph: Graph) -> Payload:
        text = json.dumps(graph, sort_keys=True, separators=(",", ":"))
        return cls(name, graph, hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest())

    @cached_property
    def needed(self) -> frozenset[str]:
        """The outputs and all nodes that lead to them; every node while the outputs are unknown."""
        return leading_to(self.graph, self.outputs) if self.outputs else frozenset(self.graph)

    @cached_property
    def seed_places(self) -> tuple[Place, ...]:
        """Where a seed is written as a number: node and input."""
        places = product(natural_order(self.needed), SEED_INPUTS)
        return tuple((node, name) for node, name in places if type(inputs_of(self.graph, node).get(name)) is int)

    def varied(self, index: int, chance: random.Random, prefix: str) -> Graph:
        """The workflow as prompt number `index`, with new seeds, and results in a folder of this run."""
        return _placed(self.graph, self.new_values(chance) | self._own_prefixes(index, prefix))

    def new_values(self, chance: random.Random) -> dict[Place, Any]:
        """New seeds, or where there is none other values that no cache has seen."""
        values: dict[Place, Any] = {where: chance.randrange(SEEDS) for where in self.seed_places}
        if not values:
            token = f"{chance.getrandbits(64):x}"
            nodes = [node_id for node_id in natural_order(self.needed) if not names_model(self.graph, node_id)]
            values = {(node_id, OWN_INPUT): token for node_id in nodes}
        return values

    def same(self, index: int, prefix: str) -> Graph:
        """The workflow with the same seeds, which a cache answers. Only the folder of its results differs."""
        return _placed(self.graph, self._own_prefixes(index, prefix))

    def _own_prefixes(self, index: int, prefix: str) -> dict[Place, Any]:
        folder = f"{prefix}/{index // FOLDER_SIZE:04d}"
        savers = natural_order(saving_nodes(self.graph))
        return {(node_id, SAVES_UNDER): f"{folder}/{index:06d}_{number}" for number, node_id in enumerate(savers)}

    @property
    def facts(self) -> WorkflowFacts:
        return WorkflowFacts(name=self.name, sha256=self.digest, nodes=len(self.graph))


def new_run_prefix() -> str:
    """A folder at the server that no other run writes to."""
    return f"e3_lab/{secrets.token_hex(4)}"


def read_payload(path: Path) -> Payload:
    """A workflow in API format, bare or wrapped as a `/prompt` body. NoWorkflow if it cannot be read."""
    return Payload.of(path.stem, read_template(path))


def bound_to_defaults(workflow: Workflow, workspace: Workspace, given: Mapping[str, Any] | None = None) -> Payload:
    """A workflow of the workspace with given values, else its defaults, else the template's. PayloadError if one does
    not fit or its picture cannot be used."""
    recipe = replace(workflow.recipe, required_inputs=())
    try:
        values, _ = workflow.bound(given or {}, recipe=recipe)
    except Unbindable as error:
        remedy = "" if given else ": give it one in workflows.yaml"
        raise PayloadError(f"{recipe.workflow_id}: {error}{remedy}") from None
    files = InputFiles(workspace)
    pictures: dict[str, Path] = {}
    for where, value in values.items():
        there = workflow.places.all[where]
        if isinstance(value, str) and takes_file(there.class_type, there.name):
            try:
                found = files.local_file(value)
            except Unusable as error:
                raise PayloadError(f"{recipe.workflow_id}: {where}: {error}") from None
            pictures |= {where: found} if found is not None else {}
    return replace(Payload.of(recipe.workflow_id, place(workflow.graph, values)), pictures=pictures)


async def fitted(payload: Payload, client: ComfyClient) -> Payload:
    """The payload for this server, its pictures uploaded. `auto`, and the samples' model if the server lacks it, become
    its first model. PayloadError if the server lacks a node or a model; ComfyError if it cannot be asked."""
    graph = payload.graph
    chosen: dict[Place, str] = {}
    known = {name: await client.definitions.of(name) for name in {class_of(graph, node_id) for node_id in graph}}
    for node_id in graph:
        name = class_of(graph, node_id)
        definition = known[name]
        if definition is None:
            raise PayloadError(
                f"{client.address} has no node {name!r} (node {node_id} of {payload.name}): install it there, "
                "or give a workflow that this server can run"
            )
        chosen |= _models(payload, node_id, definition, str(client.address))
    outputs = frozenset(
        node_id for node_id in graph if (known[class_of(graph, node_id)] or {}).get("output_node") is True
    )
    notes = [
        f"{client.address} has no model {MODEL}, which {payload.name} names: it was measured with {model}"
        for (node_id, name), model in chosen.items()
        if inputs_of(graph, node_id)[name] == MODEL
    ]
    uploaded = {
        where: (await client.upload(path, path.name, subfolder=FOLDER)).reference
        for where, path in payload.pictures.items()
    }
    return replace(payload, graph=place(_placed(graph, chosen), uploaded), outputs=outputs, notes=tuple(notes))


def _models(payload: Payload, node_id: str, definition: Mapping[str, Any], server: str) -> dict[Place, str]:
    found: dict[Place, str] = {}
    for name, value in inputs_of(payload.graph, node_id).items():
        if value not in (AUTO, MODEL):
            continue
        choices = choices_of(definition, name)
        if choices is not None and value in choices:
            continue
        try:
            model = first_model(choices)
        except LookupError:
            raise PayloadError(f"{server} has no model for {node_id}.{name} of {payload.name}: give it one") from None
        found |= {(node_id, name): model} if model is not None else {}
    return found


def _placed(graph: Graph, values: Mapping[Place, Any]) -> Graph:
    """A copy with each value at its place. Node ids may contain any character."""
    placed = dict(graph)
    for (node_id, name), value in values.items():
        placed[node_id] = {**placed[node_id], "inputs": {**inputs_of(placed, node_id), name: value}}
    return placed


def names_model(graph: Graph, node_id: str) -> bool:
    """Whether a node names a model file. If that node differed, each prompt would load the model again."""
    inputs = inputs_of(graph, node_id)
    return any(isinstance(each, str) and each.lower().endswith(MODEL_ENDINGS) for each in inputs.values())


def sample_path(name: str, root: Path) -> Path | None:
    """The file of a sample in the workspace, else the one that comes with E3; None if there is no such sample."""
    if name not in SAMPLES:
        return None
    places = [root / "infra" / "comfyui" / "samples", SHIPPED, CHECKOUT]
    return next((place / f"{name}.json" for place in places if (place / f"{name}.json").is_file()), None)
