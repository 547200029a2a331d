"""A workflow as the page has it after loading: every node with its fields, every subgraph node with its own values.

A subgraph node shows fields of nodes inside it (promoted widgets). Its values for them win over those inside. Pages up
to ComfyUI 0.7 keep the value of a field that is not connected to an end of the subgraph inside; later ones connect it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from comfyui_agent.workflows.editor_graph import INPUT_BOUNDARY, Boundary, EditorDocument, EditorGraph, EditorNode, Slot
from comfyui_agent.workflows.effort import Effort
from comfyui_agent.workflows.errors import BadWorkflow, NotConvertible, shown
from comfyui_agent.workflows.input_specs import NodeClass
from comfyui_agent.workflows.node_fields import ABSENT, Field, NodeFields, added_field

PRIMITIVE, REROUTE = "PrimitiveNode", "Reroute"
MOST_PROMOTED = 1_000
HOST_STEPS = 10
"""For each input of a subgraph, which each of its nodes has."""
VIRTUAL = frozenset({PRIMITIVE, REROUTE, "Note", "MarkdownNote"})
"""Nodes that only the page has."""


@dataclass
class LoadedNode:
    node: EditorNode
    inputs: list[Slot]
    outputs: list[str]
    title: str
    fields: NodeFields | None = None
    """None for virtual nodes, subgraph nodes, and classes that the server lacks."""
    subgraph: LoadedGraph | None = None
    promoted: dict[str, Field] = field(default_factory=dict)
    """The fields of a subgraph node, by the name of its input."""

    def field_at(self, slot: Slot) -> Field | None:
        """The field that an input belongs to."""
        if self.fields is not None:
            return self.fields.named(slot.widget) if slot.widget else None
        return self.promoted.get(slot.name)

    @property
    def values(self) -> list[Any]:
        return self.node.widgets_values if isinstance(self.node.widgets_values, list) else []


@dataclass
class LoadedGraph:
    graph: EditorGraph
    nodes: dict[str, LoadedNode]
    effort: Effort

    def targets_of(self, node_id: str) -> list[tuple[LoadedNode, Slot]]:
        """The inputs that a node feeds."""
        self.effort.spend(len(self.graph.links))
        links = [link.id for link in self.graph.links.values() if link.origin_id == node_id]
        return [found for link_id in links if (found := self._target(link_id)) is not None]

    def _target(self, link_id: int) -> tuple[LoadedNode, Slot] | None:
        """The node and the input where a link ends."""
        self.effort.spend(1)
        link = self.graph.links.get(link_id)
        node = self.nodes.get(link.target_id) if link is not None else None
        if node is None:
            return None
        self.effort.spend(len(node.inputs))
        return next(((node, slot) for slot in node.inputs if slot.link == link_id), None)

    def field_of(self, end: Boundary) -> tuple[LoadedNode, Field] | None:
        """The first field that an input of this subgraph leads to, and its node."""
        self.effort.spend(1)
        for target in map(self._target, end.linkIds):
            if target is not None and (found := target[0].field_at(target[1])) is not None:
                return target[0], found
        return None

    def add_input(self, name: str, targets: list[tuple[LoadedNode, Slot]]) -> Boundary:
        """A new input of this subgraph that is connected to these inputs of nodes."""
        ends = self.graph.inputs
        self.effort.spend(2 * len(ends))
        names = {end.name for end in ends}
        numbered = (f"{name}_{number}" for number in range(1, len(ends) + 1))
        end = Boundary(next(each for each in chain([name], numbered) if each not in names), targets[0][1].type)
        for node, slot in targets:
            slot.link = self.graph.connect(INPUT_BOUNDARY, len(ends), node.node.id)
            end.linkIds.append(slot.link)
        ends.append(end)
        return end


class Loading:
    """Loads the graphs of a document, subgraphs before those that use them."""

    def __init__(self, document: EditorDocument, definitions: Mapping[str, Any], is_old: bool, effort: Effort) -> None:
        self._document, self._definitions, self._is_old, self._effort = document, definitions, is_old, effort
        self._classes: dict[str, NodeClass] = {}
        self._loaded: dict[str, LoadedGraph | None] = {}

    def load(self, graph: EditorGraph) -> LoadedGraph:
        loaded = LoadedGraph(graph, {node.id: self._load_node(node) for node in graph.nodes.values()}, self._effort)
        for host in loaded.nodes.values():
            if host.subgraph is not None and not self._is_old:
                _connect_promoted(host, host.subgraph)
        primitives = [node for node in loaded.nodes.values() if node.node.type == PRIMITIVE]
        if len(primitives) > MOST_PROMOTED:
            raise BadWorkflow(f"it has more than {MOST_PROMOTED:,} primitive nodes")
        for primitive in primitives:
            _spread(primitive, loaded)
        return loaded

    def _load_node(self, node: EditorNode) -> LoadedNode:
        if node.type in self._document.subgraphs:
            return self._load_host(node, self._subgraph(node.type))
        given = [slot.type for slot in node.outputs]
        if node.type in VIRTUAL or not isinstance(self._definitions.get(node.type), Mapping):
            return LoadedNode(node, node.inputs, given, node.title or node.type)
        if node.type not in self._classes:
            self._classes[node.type] = NodeClass(node.type, self._definitions[node.type])
        kind = self._classes[node.type]
        fields = NodeFields(kind, node)
        outputs = [given[at] if at < len(given) and "COMFY_" in name else name for at, name in enumerate(kind.outputs)]
        return LoadedNode(node, fields.slots(), outputs + given[len(outputs) :], node.title or kind.title, fields)

    def _subgraph(self, name: str) -> LoadedGraph:
        if name not in self._loaded:
            self._loaded[name] = None
            self._loaded[name] = self.load(self._document.subgraphs[name])
        found = self._loaded[name]
        if found is None:
            raise BadWorkflow(f"subgraph {self._document.subgraphs[name].name!r} contains itself")
        return found

    def _load_host(self, node: EditorNode, inner: LoadedGraph) -> LoadedNode:
        self._effort.spend(HOST_STEPS * len(inner.graph.inputs))
        links = {slot.name: slot.link for slot in node.inputs}
        outputs = [end.type for end in inner.graph.outputs]
        host = LoadedNode(node, [], outputs, node.title or inner.graph.name, subgraph=inner)
        for end in inner.graph.inputs:
            _add_host_input(host, inner, end, links.get(end.name))
        for promoted, value in zip(host.promoted.values(), host.values, strict=False):
            promoted.value = value
        if self._is_old:
            _keep_inside(host)
        return host


def _proxies(host: LoadedNode) -> list[list[str]]:
    """The promoted fields that a subgraph node lists: node id inside, or -1, and name."""
    given = host.node.properties.get("proxyWidgets")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    entries = given if isinstance(given, list) else []
    right = [e for e in entries if isinstance(e, list) and len(e) in (2, 3) and all(isinstance(x, str) for x in e)]
    return right if len(right) == len(entries) <= MOST_PROMOTED else []


def _keep_inside(host: LoadedNode) -> None:
    """What pages up to 0.7 do: only fields listed with -1 take the subgraph node's value."""
    proxies = _proxies(host)
    own = {name for node_id, name, *_ in proxies if node_id == "-1"}
    for _, name, *_ in proxies:
        if name not in own:
            host.promoted.pop(name, None)
    for (node_id, name, *_), value in zip(proxies, host.values, strict=False):
        if node_id == "-1" and value is not None and name in host.promoted:
            host.promoted[name].value = value


def _connect_promoted(host: LoadedNode, inner: LoadedGraph) -> None:
    """What later pages do: a listed field without an end of the subgraph gets one, and takes the node's value."""
    for added in inner.graph.inputs[len(host.inputs) :]:
        _add_host_input(host, inner, added)
    for (node_id, name, *_), value in zip(_proxies(host), chain(host.values, repeat(None)), strict=False):
        inner.effort.spend(len(host.inputs))
        end = _end_for(inner, node_id, name) or (_new_end(inner, node_id, name) if node_id != "-1" else None)
        if end is not None and end.name not in {slot.name for slot in host.inputs}:
            _add_host_input(host, inner, end)
        primitive = inner.nodes.get(node_id)
        if end is not None and value is None and primitive is not None and primitive.node.type == PRIMITIVE:
            reason = (
                f"it shows the value of node {shown(node_id)} inside and has none of its own: set it there once more"
            )
            raise NotConvertible(host.node.id, host.title, reason)
        known = end.name if end is not None else name if node_id == "-1" else None
        if known in host.promoted and value is not None:
            host.promoted[known].value = value


def _add_host_input(host: LoadedNode, inner: LoadedGraph, end: Boundary, link: int | None = None) -> None:
    host.inputs.append(Slot(end.name, end.type, link))
    if (found := inner.field_of(end)) is not None:
        host.promoted[end.name] = added_field(end.name, found[1].value)


def _end_for(inner: LoadedGraph, node_id: str, name: str) -> Boundary | None:
    for end in inner.graph.inputs:
        found = inner.field_of(end)
        if found is not None and (found[0].node.id, found[1].name) == (node_id, name):
            return end
    return None


def _new_end(inner: LoadedGraph, node_id: str, name: str) -> Boundary | None:
    node = inner.nodes.get(node_id)
    if node is None:
        return None
    if node.node.type == PRIMITIVE:
        targets = inner.targets_of(node_id)
        return inner.add_input(node.title if node.node.title else name, targets) if targets else None
    slot = next((each for each in node.inputs if name in (each.widget, each.name)), None)
    if slot is None or (node.fields is None and slot.name not in node.promoted):
        return None
    return inner.add_input(name, [(node, slot)])


def _spread(primitive: LoadedNode, graph: LoadedGraph) -> None:
    """A primitive node's value goes into the fields that it feeds."""
    value = primitive.values[0] if primitive.values else ABSENT
    for node, slot in graph.targets_of(primitive.node.id):
        fed = node.field_at(slot)
        if fed is None:
            continue
        if value is ABSENT and node.fields is not None:
            value = fed.value
        if node.fields is not None:
            node.fields.set(fed, value)
        elif value is not ABSENT:
            fed.value = value
