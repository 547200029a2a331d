"""What is sent to a server that is measured: a workflow, made different for each prompt so that no cache answers it."""

from __future__ import annotations

import hashlib
import json
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from comfyui_agent.comfy.client import ComfyClient
from comfyui_agent.config.workflows import NoWorkflow, read_template
from comfyui_agent.domain.placing import place
from comfyui_agent.domain.prompts import SAVES_UNDER, Graph, class_of, inputs_of, natural_order, saving_nodes
from comfyui_agent.engine.fitting import AUTO, MODEL_ENDINGS, first_model, offered

SEED_INPUTS = ("seed", "noise_seed")
SEEDS = 2**32
OWN_INPUT = "e3_load"
"""An input that no node declares: servers keep it from the node and count it when they look into their cache."""
FOLDER_SIZE = 200
"""A save node lists the whole folder that it saves to: full folders would be measured instead of the workflow."""


class PayloadError(Exception):
    """A workflow that cannot be sent: what is wrong, and what to do."""


@dataclass(frozen=True)
class Payload:
    """A workflow to press with, and the digest that tells it from others."""

    name: str
    graph: Graph
    digest: str

    @classmethod
    def of(cls, name: str, graph: Graph) -> Payload:
        text = json.dumps(graph, sort_keys=True, separators=(",", ":"))
        return cls(name, graph, hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest())

    @property
    def seed_places(self) -> tuple[str, ...]:
        """Where a seed is written as a number: `5.seed`."""
        found = []
        for node_id in natural_order(self.graph):
            for name in SEED_INPUTS:
                value = inputs_of(self.graph, node_id).get(name)
                if isinstance(value, int) and not isinstance(value, bool):
                    found.append(f"{node_id}.{name}")
        return tuple(found)

    @property
    def is_varied_by_seed(self) -> bool:
        return bool(self.seed_places)

    def varied(self, index: int, chance: random.Random, prefix: str) -> Graph:
        """The workflow as prompt number `index`: seeds that nobody has used, results in a folder of the run's own."""
        values: dict[str, Any] = {where: chance.randrange(SEEDS) for where in self.seed_places}
        if not values:
            token = f"{chance.getrandbits(64):x}"
            nodes = [node_id for node_id in self.graph if not _loads_model(self.graph, node_id)]
            values = {f"{node_id}.{OWN_INPUT}": token for node_id in nodes}
        return place(self.graph, values | self._own_prefixes(index, prefix))

    def same(self, index: int, prefix: str) -> Graph:
        """The workflow unchanged but for where its results go: what a cache answers."""
        return place(self.graph, self._own_prefixes(index, prefix))

    def _own_prefixes(self, index: int, prefix: str) -> dict[str, str]:
        folder = f"{prefix}/{index // FOLDER_SIZE:04d}"
        return {f"{node_id}.{SAVES_UNDER}": f"{folder}/{index:06d}_{node_id}" for node_id in saving_nodes(self.graph)}

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.digest, "nodes": len(self.graph)}


def new_run_prefix() -> str:
    """A folder at the server that no other run writes to."""
    return f"e3_lab/{secrets.token_hex(4)}"


def read_payload(path: Path) -> Payload:
    """A workflow in API format, bare or wrapped as a `/prompt` body; PayloadError in one line."""
    if not path.exists():
        raise PayloadError(f"there is no file {path}: give a workflow in API format with --workflow")
    try:
        return Payload.of(path.stem, read_template(path))
    except NoWorkflow as error:
        raise PayloadError(str(error)) from None


async def fitted(payload: Payload, client: ComfyClient) -> Payload:
    """The payload for this server: `auto` becomes the first model that it offers.

    PayloadError if the server lacks a node or a model; ComfyError if it cannot be asked.
    """
    graph = payload.graph
    chosen: dict[str, Any] = {}
    known: dict[str, Mapping[str, Any] | None] = {}
    for node_id in graph:
        name = class_of(graph, node_id)
        if name not in known:
            known[name] = await client.definitions.of(name)
        definition = known[name]
        if definition is None:
            raise PayloadError(
                f"{client.address} has no node {name!r} (node {node_id} of {payload.name}): install it there, "
                "or give a workflow that this server can run"
            )
        chosen |= _models(payload, node_id, definition, str(client.address))
    return replace(payload, graph=place(graph, chosen)) if chosen else payload


def _models(payload: Payload, node_id: str, definition: Mapping[str, Any], server: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in inputs_of(payload.graph, node_id).items():
        if value != AUTO:
            continue
        try:
            model = first_model(offered(definition, name))
        except LookupError:
            raise PayloadError(f"{server} has no model for {node_id}.{name} of {payload.name}: give it one") from None
        found |= {f"{node_id}.{name}": model} if model is not None else {}
    return found


def _loads_model(graph: Graph, node_id: str) -> bool:
    """Whether a node reads a model from disk: done anew for each prompt, that would be measured instead."""
    inputs = inputs_of(graph, node_id)
    return any(isinstance(each, str) and each.lower().endswith(MODEL_ENDINGS) for each in inputs.values())
