"""A workflow as ComfyUI's page saves it (UI format, versions 0.4 and 1), read into typed graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.workflows.errors import BadWorkflow, shown

MOST_NODES = 20_000
MOST_LINKS = 100_000
MOST_SLOTS = 2_000
MUTED, BYPASSED = 2, 4
INPUT_BOUNDARY, OUTPUT_BOUNDARY = "-10", "-20"
"""The ids of a subgraph's own ends in its links."""
SIDES = ("inputs", "outputs")
GROUP_PREFIXES = ("workflow/", "workflow>")


@dataclass
class Slot:
    """An input or output of a node. `widget` names the field that an input belongs to."""

    name: str
    type: str
    link: int | None = None
    links: tuple[int, ...] = ()
    widget: str | None = None


@dataclass(frozen=True)
class Link:
    id: int
    origin_id: str
    origin_slot: int
    target_id: str
    type: str = "*"


@dataclass
class EditorNode:
    id: str
    type: str
    title: str
    mode: int
    inputs: list[Slot]
    outputs: list[Slot]
    values: list[Any] | dict[str, Any] | None
    properties: Mapping[str, Any]


@dataclass
class Boundary:
    """An input or output of a subgraph, and the links inside that start or end there."""

    name: str
    type: str
    links: list[int]


@dataclass
class EditorGraph:
    id: str
    name: str
    nodes: dict[str, EditorNode]
    links: dict[int, Link]
    inputs: list[Boundary] = field(default_factory=list)
    outputs: list[Boundary] = field(default_factory=list)


@dataclass
class EditorDocument:
    root: EditorGraph
    subgraphs: dict[str, EditorGraph]
    groups: Mapping[str, Any]
    last_node_id: int


def read_editor_document(document: Any) -> EditorDocument:
    """The graphs of a workflow in UI format. BadWorkflow names what has the wrong shape."""
    top = _mapping(document, "the workflow")
    root = _read_graph(top, "")
    definitions = _mapping(top.get("definitions") or {}, "definitions")
    subgraphs = {}
    for entry in _items(definitions.get("subgraphs"), "definitions.subgraphs"):
        graph = _read_graph(_mapping(entry, "a subgraph"), shown(_text(entry.get("name") or "a subgraph", "a name")))
        subgraphs[graph.id] = graph
    if sum(len(graph.nodes) for graph in (root, *subgraphs.values())) > MOST_NODES:
        raise BadWorkflow(f"it has more than {MOST_NODES:,} nodes")
    extra = top.get("extra")
    groups = extra.get("groupNodes") if isinstance(extra, dict) else None
    state = top.get("state")
    last = state.get("lastNodeId") if isinstance(state, dict) else top.get("last_node_id")
    return EditorDocument(root, subgraphs, groups if isinstance(groups, dict) else {}, _last_id(last, root))


def _last_id(given: Any, root: EditorGraph) -> int:
    own = [int(node_id) for node_id in root.nodes if node_id.isascii() and node_id.isdigit() and len(node_id) < 10]
    return max([given if type(given) is int and 0 <= given < 10**9 else 0, *own])


def _read_graph(entry: Mapping[str, Any], where: str) -> EditorGraph:
    links = {}
    for item in _items(entry.get("links"), "links"):
        link = _read_link(item)
        links[link.id] = link
    if len(links) > MOST_LINKS:
        raise BadWorkflow(f"it has more than {MOST_LINKS:,} links")
    nodes: dict[str, EditorNode] = {}
    for item in _items(entry.get("nodes"), f"nodes of {where}" if where else "nodes"):
        node = read_node(item)
        if node.id in nodes:
            raise BadWorkflow(f"two nodes have the id {shown(node.id)}")
        nodes[node.id] = node
    ends = [[_read_boundary(item) for item in _items(entry.get(key), key)] for key in SIDES]
    graph_id = _text(entry.get("id") or "", "the id of a graph")
    return EditorGraph(graph_id, where, nodes, links, *ends)


def read_node(item: Any) -> EditorNode:
    """One node. BadWorkflow if it has the wrong shape."""
    node = _mapping(item, "a node")
    node_id, kind = _identity(node.get("id"), "a node's id"), _text(node.get("type"), "a node's type")
    title, mode, values = node.get("title"), node.get("mode", 0), node.get("widgets_values")
    if values is not None and not isinstance(values, (list, dict)):
        raise BadWorkflow(f"node {shown(node_id)}: widgets_values is neither a list nor a mapping")
    inputs, outputs = ([_read_slot(each, node_id) for each in _items(node.get(key), key)] for key in SIDES)
    if len(inputs) > MOST_SLOTS or len(outputs) > MOST_SLOTS:
        raise BadWorkflow(f"node {shown(node_id)} has more than {MOST_SLOTS:,} inputs or outputs")
    properties = node.get("properties")
    return EditorNode(
        node_id,
        kind,
        title if isinstance(title, str) else "",
        mode if type(mode) is int else 0,
        inputs,
        outputs,
        values,
        properties if isinstance(properties, dict) else {},
    )


def _read_slot(item: Any, node_id: str) -> Slot:
    where = f"a slot of node {shown(node_id)}"
    slot = _mapping(item, where)
    widget = slot.get("widget")
    name = widget.get("name") if isinstance(widget, dict) else None
    link = slot.get("link")
    if link is not None and type(link) is not int:
        raise BadWorkflow(f"{where} has a link that is no number")
    return Slot(
        _text(slot.get("name") or "", f"the name of {where}"),
        slot_type(slot.get("type")),
        link,
        tuple(each for each in _items(slot.get("links"), "links") if type(each) is int),
        name if isinstance(name, str) else None,
    )


def slot_type(declared: Any) -> str:
    """The type of a slot as a text: lists of choices are COMBO, and what is no type is anything."""
    if isinstance(declared, list):
        return "COMBO"
    return declared if isinstance(declared, str) else "*"


def _read_link(item: Any) -> Link:
    keys = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
    if isinstance(item, list) and len(item) >= 5:
        item = dict(zip(keys, item, strict=False))
    link = _mapping(item, "a link")
    number, slot = link.get("id"), link.get("origin_slot")
    if type(number) is not int or type(slot) is not int:
        raise BadWorkflow(f"link {shown(number)} has no whole numbers for its id and slot")
    ends = [_identity(link.get(key), "an end of a link") for key in ("origin_id", "target_id")]
    return Link(number, ends[0], slot, ends[1], slot_type(link.get("type")))


def _read_boundary(item: Any) -> Boundary:
    entry = _mapping(item, "an end of a subgraph")
    links = [each for each in _items(entry.get("linkIds"), "linkIds") if type(each) is int]
    return Boundary(_text(entry.get("name") or "", "its name"), slot_type(entry.get("type")), links)


def _identity(value: Any, what: str) -> str:
    if type(value) is int or (isinstance(value, str) and value):
        return str(value)
    raise BadWorkflow(f"{what} is {shown(value)!r}, neither a number nor a text")


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadWorkflow(f"{what} is no mapping")
    return value


def _items(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadWorkflow(f"{what} is no list")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise BadWorkflow(f"{what} is no text")
    return value
