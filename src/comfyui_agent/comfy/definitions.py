"""Node definitions of one server, asked for class by class and remembered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.domain.prompts import Graph, class_of

MOST_REMEMBERED = 5_000


class NodeDefinitions:
    """`/object_info`, as much of it as is needed."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_output: dict[str, bool] = {}

    async def all(self) -> Mapping[str, Any]:
        document = await self._transport.get_json("object_info", most=self._transport.limits.definitions_bytes)
        return shapes.mapping(document, "the node definitions")

    async def of(self, class_type: str) -> Mapping[str, Any] | None:
        """The definition of one class; None if the server has no such node."""
        path = f"object_info/{quote(class_type, safe='')}"
        document = await self._transport.get_json(path, most=self._transport.limits.definitions_bytes)
        definition = shapes.mapping(document, "a node definition").get(class_type)
        return None if definition is None else shapes.mapping(definition, "a node definition")

    async def output_nodes(self, graph: Graph) -> frozenset[str]:
        """The nodes of a graph that the server would execute for their own sake."""
        found = set()
        for node_id in graph:
            name = class_of(graph, node_id)
            if name and name not in self._is_output:
                definition = await self.of(name)
                if len(self._is_output) < MOST_REMEMBERED:
                    self._is_output[name] = definition is not None and definition.get("output_node") is True
            if self._is_output.get(name):
                found.add(node_id)
        return frozenset(found)
