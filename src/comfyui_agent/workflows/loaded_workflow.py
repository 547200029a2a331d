"""A workflow as the page has it after loading: every node with its fields, every subgraph node with its own values.

A subgraph node shows fields of nodes inside it (promoted widgets). Its values for them win over those inside. Pages up
to ComfyUI 0.7 keep the value of a field that is not connected to an end of the subgraph inside; later ones connect it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.workflows.editor_graph import Boundary, EditorDocument, EditorGraph, EditorNode, Link, Slot
from comfyui_agent.workflows.effort import Effort
from comfyui_agent.workflows.errors import BadWorkflow, NotConvertible, shown
from comfyui_agent.workflows.input_specs import NodeClass
from comfyui_agent.workflows.node_fields import ABSENT, NodeFields

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
    promoted: dict[str, Any] = field(default_factory=dict)
    """Values of a subgraph node, by the name of its input."""


@dataclass
class LoadedGraph:
    graph: EditorGraph
    nodes: dict[str, LoadedNode]
    effort: Effort
    _added: int = -(10**9)
    """The id of the link that was added last: smaller than any of a file."""

    def targets_of(self, node_id: str) -> list[tuple[LoadedNode, Slot]]:
        """The inputs that a node feeds."""
        self.effort.spend(len(self.graph.links))
        links = [link.id for link in self.graph.links.values() if link.origin_id == node_id]
        return [found for link_id in links if (found := self.target(link_id)) is not None]

    def target(self, link_id: int) -> tuple[LoadedNode, Slot] | None:
        """The node and the input where a link ends."""
        link = self.graph.links.get(link_id)
        node = self.nodes.get(link.target_id) if link is not None else None
        self.effort.spend(1 + len(node.inputs) if node is not None else 1)
        slot = next((each for each in node.inputs if each.link == link_id), None) if node is not None else None
        return None if node is None or slot is None else (node, slot)

    def sources(self, end: Boundary) -> Iterator[tuple[LoadedNode, str, Any]]:
        """The fields that an input of this subgraph leads to: node, name and value."""
        self.effort.spend(1)
        for link_id in end.linkIds:
            found = self.target(link_id)
            if found is None:
                continue
            node, slot = found
            if node.subgraph is not None and slot.name in node.promoted:
                yield node, slot.name, node.promoted[slot.name]
            elif node.fields is not None and slot.widget and (known := node.fields.named(slot.widget)) is not None:
                yield node, known.name, known.value

    def add_input(self, name: str, targets: list[tuple[LoadedNode, Slot]]) -> Boundary:
        """A new input of this subgraph that is connected to these inputs of nodes."""
        self.effort.spend(2 * len(self.graph.inputs))
        names = {end.name for end in self.graph.inputs}
        unique = next(
            each for number in range(len(names) + 1) if (each := f"{name}_{number}" if number else name) not in names
        )
        end = Boundary(unique, targets[0][1].type)
        self.graph.inputs.append(end)
        for node, slot in targets:
            self._added -= 1
            slot.link = self._added
            self.graph.links[slot.link] = Link(slot.link, "-10", len(self.graph.inputs) - 1, node.node.id)
            end.linkIds.append(slot.link)
        return end


class Loading:
    """Loads the graphs of a document, subgraphs before those that use them."""

    def __init__(
        self, document: EditorDocument, definitions: Mapping[str, Any], connects_promoted: bool, effort: Effort
    ) -> None:
        self._document, self._definitions, self._connects = document, definitions, connects_promoted
        self._effort = effort
        self._classes: dict[str, NodeClass] = {}
        self._loaded: dict[str, LoadedGraph | None] = {}

    def load(self) -> LoadedGraph:
        return self._load(self._document.root)

    def _load(self, graph: EditorGraph) -> LoadedGraph:
        loaded = LoadedGraph(graph, {}, self._effort)
        for node in graph.nodes.values():
            loaded.nodes[node.id] = self._load_node(node)
        for host in loaded.nodes.values():
            if host.subgraph is not None and self._connects:
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
        if node.type in VIRTUAL or not isinstance(self._definitions.get(node.type), Mapping):
            return LoadedNode(node, node.inputs, [slot.type for slot in node.outputs], node.title or node.type)
        if node.type not in self._classes:
            self._classes[node.type] = NodeClass(node.type, self._definitions[node.type])
        kind = self._classes[node.type]
        fields = NodeFields(kind, node)
        given = [slot.type for slot in node.outputs]
        outputs = [given[at] if at < len(given) and "COMFY_" in name else name for at, name in enumerate(kind.outputs)]
        return LoadedNode(node, fields.slots(), outputs + given[len(outputs) :], node.title or kind.title, fields)

    def _subgraph(self, name: str) -> LoadedGraph:
        if name not in self._loaded:
            self._loaded[name] = None
            self._loaded[name] = self._load(self._document.subgraphs[name])
        found = self._loaded[name]
        if found is None:
            raise BadWorkflow(f"subgraph {self._document.subgraphs[name].name!r} contains itself")
        return found

    def _load_host(self, node: EditorNode, inner: LoadedGraph) -> LoadedNode:
        self._effort.spend(HOST_STEPS * len(inner.graph.inputs))
        given = {slot.name: slot.link for slot in node.inputs}
        inputs = [Slot(end.name, end.type, given.get(end.name)) for end in inner.graph.inputs]
        outputs = [end.type for end in inner.graph.outputs]
        host = LoadedNode(node, inputs, outputs, node.title or inner.graph.name, subgraph=inner)
        for end in inner.graph.inputs:
            if (source := next(inner.sources(end), None)) is not None:
                host.promoted[end.name] = source[2]
        values = node.widgets_values if isinstance(node.widgets_values, list) else []
        host.promoted.update(zip(list(host.promoted), values, strict=False))
        if not self._connects:
            _keep_inside(host)
        return host


def _proxies(host: LoadedNode) -> list[list[str]] | None:
    """The promoted fields that a subgraph node lists: node id inside, or -1, and name. None if it has no list."""
    given = host.node.properties.get("proxyWidgets")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return []
    if given is None:
        return None
    entries = given if isinstance(given, list) else []
    right = [e for e in entries if isinstance(e, list) and len(e) in (2, 3) and all(isinstance(x, str) for x in e)]
    return right if len(right) == len(entries) <= MOST_PROMOTED else []


def _keep_inside(host: LoadedNode) -> None:
    """What pages up to 0.7 do: only fields listed with -1 take the subgraph node's value."""
    proxies = _proxies(host)
    if not proxies:
        return
    own = {name for node_id, name, *_ in proxies if node_id == "-1"}
    for name in {entry[1] for entry in proxies} - own:
        host.promoted.pop(name, None)
    for (node_id, name, *_), value in zip(proxies, _values(host), strict=False):
        if node_id == "-1" and value is not None and name in host.promoted:
            host.promoted[name] = value


def _values(host: LoadedNode) -> list[Any]:
    return host.node.widgets_values if isinstance(host.node.widgets_values, list) else []


def _connect_promoted(host: LoadedNode, inner: LoadedGraph) -> None:
    """What later pages do: a listed field without an end of the subgraph gets one, and takes the node's value."""
    for added in inner.graph.inputs[len(host.inputs) :]:
        _add_host_input(host, inner, added)
    for index, (node_id, name, *_) in enumerate(_proxies(host) or []):
        values = _values(host)
        value = values[index] if index < len(values) else None
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
            host.promoted[known] = value


def _add_host_input(host: LoadedNode, inner: LoadedGraph, end: Boundary) -> None:
    host.inputs.append(Slot(end.name, end.type))
    if (source := next(inner.sources(end), None)) is not None:
        host.promoted[end.name] = source[2]


def _end_for(inner: LoadedGraph, node_id: str, name: str) -> Boundary | None:
    for end in inner.graph.inputs:
        source = next(inner.sources(end), None)
        if source is not None and (source[0].node.id, source[1]) == (node_id, name):
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
    values = primitive.node.widgets_values
    value = values[0] if isinstance(values, list) and values else ABSENT
    for node, slot in graph.targets_of(primitive.node.id):
        known = node.fields.named(slot.widget) if node.fields is not None and slot.widget else None
        if value is ABSENT and known is not None:
            value = known.value
        if known is not None and node.fields is not None and value is not ABSENT:
            node.fields.set(known, value)
        elif slot.name in node.promoted and value is not ABSENT:
            node.promoted[slot.name] = value
