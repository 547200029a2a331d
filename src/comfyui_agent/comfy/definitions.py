"""Node definitions of one server, asked for class by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.domain.prompts import Graph, class_of

MOST_REMEMBERED = 5_000
MOST_ASKED_SINGLY = 30


class NodeDefinitions:
    """The needed parts of `/object_info`. It remembers which classes are output nodes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_output: dict[str, bool] = {}

    async def all(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._ask("object_info")

    async def of(self, class_type: str) -> Mapping[str, Any] | None:
        """The definition of one class. None if the server does not have it."""
        return (await self._ask(f"object_info/{quote(class_type, safe='', errors='replace')}")).get(class_type)

    async def _ask(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        return await self._transport.get_json(path, _read_definitions, most=self._transport.limits.definitions_bytes)

    async def output_nodes(self, graph: Graph) -> frozenset[str]:
        names = {node_id: class_of(graph, node_id) for node_id in graph}
        await self._learn(set(names.values()) - self._is_output.keys() - {""})
        return frozenset(node_id for node_id, name in names.items() if self._is_output.get(name))

    async def _learn(self, names: set[str]) -> None:
        everything = await self.all() if len(names) > MOST_ASKED_SINGLY else None
        for name in names:
            definition = await self.of(name) if everything is None else everything.get(name)
            if len(self._is_output) < MOST_REMEMBERED:
                self._is_output[name] = definition is not None and definition.get("output_node") is True


def _read_definitions(document: Any) -> Mapping[str, Mapping[str, Any]]:
    definitions = shapes.expect(dict, document, "the node definitions")
    return {name: shapes.expect(dict, info, f"node {shapes.shown(name)}") for name, info in definitions.items()}
