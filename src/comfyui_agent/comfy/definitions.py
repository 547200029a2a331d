"""Node definitions of one server, asked for class by class."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.transport import Transport
from comfyui_agent.domain.prompts import Graph, class_of
from comfyui_agent.domain.value_types import declaration_of

MOST_REMEMBERED = 5_000
MOST_ASKED_SINGLY = 30


@dataclass(frozen=True)
class NodeFacts:
    """What is remembered of a node class: whether it is an output node, and the choices of its inputs."""

    is_output: bool
    choices: Mapping[str, frozenset[str]]


class NodeDefinitions:
    """The needed parts of `/object_info`. It remembers facts of the classes that it was asked about."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[str, NodeFacts | None] = {}
        self.version = 0
        """Goes up when something else is known."""

    async def all(self) -> Mapping[str, Mapping[str, Any]]:
        return await self._ask("object_info")

    async def of(self, class_type: str) -> Mapping[str, Any] | None:
        """The definition of one class. None if the server does not have it."""
        return (await self._ask(f"object_info/{quote(class_type, safe='', errors='replace')}")).get(class_type)

    async def _ask(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        return await self._transport.get_json(path, _read_definitions, most=self._transport.limits.definitions_bytes)

    async def output_nodes(self, graph: Graph) -> frozenset[str]:
        names = {node_id: class_of(graph, node_id) for node_id in graph}
        await self.learn(set(names.values()) - {""})
        return frozenset(node_id for node_id, name in names.items() if (facts := self.facts(name)) and facts.is_output)

    def knows(self, class_type: str) -> bool:
        return class_type in self._known

    def facts(self, class_type: str) -> NodeFacts | None:
        """What is known about a class. None if the server does not have it, or was not asked."""
        return self._known.get(class_type)

    async def learn(self, names: Collection[str], *, anew: bool = False) -> None:
        """Ask about classes that are not known yet, or about all of these `anew`."""
        wanted = sorted(names if anew else set(names) - self._known.keys())
        everything = await self.all() if len(wanted) > MOST_ASKED_SINGLY else None
        if len(self._known) + len(wanted) > MOST_REMEMBERED:
            self._known.clear()
        for name in wanted:
            definition = await self.of(name) if everything is None else everything.get(name)
            found = None if definition is None else facts_of(definition)
            if name not in self._known or self._known[name] != found:
                self._known[name] = found
                self.version += 1

    def known_classes(self) -> list[str]:
        return list(self._known)


def facts_of(definition: Mapping[str, Any]) -> NodeFacts:
    inputs = definition.get("input")
    sections = [inputs.get(name) for name in ("required", "optional")] if isinstance(inputs, Mapping) else []
    names = [name for section in sections if isinstance(section, Mapping) for name in section]
    choices = {name: found for name in names if (found := choices_of(definition, name)) is not None}
    return NodeFacts(definition.get("output_node") is True, {name: frozenset(each) for name, each in choices.items()})


def choices_of(definition: Mapping[str, Any] | None, name: str) -> list[str] | None:
    """The choices of an input, by the definition of its node; None if it is no list of choices."""
    declared, options = declaration_of(definition, name)
    choices = options.get("options") if declared == "COMBO" else declared
    return [choice for choice in choices if isinstance(choice, str)] if isinstance(choices, list) else None


def _read_definitions(document: Any) -> Mapping[str, Mapping[str, Any]]:
    definitions = shapes.expect(dict, document, "the node definitions")
    return {name: shapes.expect(dict, info, f"node {shapes.shown(name)}") for name, info in definitions.items()}
