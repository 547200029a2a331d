"""A workflow as ComfyUI's page saves it (UI format, versions 0.4 and 1), read into typed graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from comfyui_agent.workflows.errors import BadWorkflow, shown

MOST_NODES = 20_000
MOST_LINKS = 100_000
MOST_SLOTS = 2_000
MUTED, BYPASSED = 2, 4
INPUT_BOUNDARY, OUTPUT_BOUNDARY = "-10", "-20"
"""The ids of a subgraph's own ends in its links."""
GROUP_PREFIXES = ("workflow/", "workflow>")
LINK_KEYS = ("id", "origin_id", "origin_slot", "target_id", "target_slot", "type")
LENIENT = ConfigDict(extra="ignore")
T = TypeVar("T")


def slot_type(declared: Any) -> str:
    """The type of a slot as a text: lists of choices are COMBO, and what is no type is anything."""
    if isinstance(declared, list):
        return "COMBO"
    return declared if isinstance(declared, str) else "*"


def _only(kind: type[T], otherwise: T) -> BeforeValidator:
    """What has another type counts as not there."""
    return BeforeValidator(lambda value: value if type(value) is kind else otherwise)


def _numbers(value: Any) -> list[int]:
    return [each for each in value if type(each) is int] if isinstance(value, list) else []


Nothing = BeforeValidator(lambda value: [] if value is None else value)
Identity = Annotated[StrictStr, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
Name = Annotated[StrictStr, BeforeValidator(lambda value: "" if value is None else value)]
SlotType = Annotated[str, BeforeValidator(slot_type)]
WidgetName = Annotated[
    StrictStr | None, BeforeValidator(lambda value: value.get("name") if isinstance(value, dict) else value)
]


@dataclass(config=LENIENT)
class Slot:
    """An input or output of a node. `widget` names the field that an input belongs to."""

    name: Name
    type: SlotType = "*"
    link: StrictInt | None = None
    widget: WidgetName = None


@dataclass(config=LENIENT)
class Link:
    id: StrictInt
    origin_id: Identity
    origin_slot: StrictInt
    target_id: Identity
    type: SlotType = "*"


Slots = Annotated[list[Slot], Nothing, Field(max_length=MOST_SLOTS)]


@dataclass(config=LENIENT)
class EditorNode:
    id: Identity
    type: StrictStr
    title: Annotated[str, _only(str, "")] = ""
    mode: Annotated[int, _only(int, 0)] = 0
    inputs: Slots = field(default_factory=list)
    outputs: Slots = field(default_factory=list)
    widgets_values: list[Any] | dict[str, Any] | None = None
    properties: Annotated[dict[str, Any], _only(dict, {})] = field(default_factory=dict)


@dataclass(config=LENIENT)
class Boundary:
    """An input or output of a subgraph, and the links inside that start or end there."""

    name: Name
    type: SlotType = "*"
    linkIds: Annotated[list[int], BeforeValidator(_numbers)] = field(default_factory=list)  # noqa: N815 - as the file has it


def _by_id(value: Any) -> Any:
    """Nodes as a mapping."""
    if not isinstance(value, list):
        return {} if value is None else value
    found = {str(each.get("id")): each for each in value if isinstance(each, dict)}
    if len(found) != len(value):
        raise ValueError("are no mappings with an id of their own")
    return found


def _links(value: Any) -> Any:
    """Links as a mapping; each is a mapping or a list."""
    given = [] if value in (None, {}) else value
    if not isinstance(given, list) or len(given) > MOST_LINKS:
        raise ValueError(f"are no list, or more than {MOST_LINKS:,}")
    read = [dict(zip(LINK_KEYS, each, strict=False)) if isinstance(each, list) else each for each in given]
    return {each["id"]: each for each in read if isinstance(each, dict) and type(each.get("id")) is int}


@dataclass(config=LENIENT)
class EditorGraph:
    nodes: Annotated[dict[str, EditorNode], BeforeValidator(_by_id)]
    links: Annotated[dict[int, Link], BeforeValidator(_links)] = field(default_factory=dict)
    id: Name = ""
    name: Name = ""
    inputs: Annotated[list[Boundary], Nothing] = field(default_factory=list)
    outputs: Annotated[list[Boundary], Nothing] = field(default_factory=list)

    def connect(self, origin_id: str, origin_slot: int, target_id: str) -> int:
        """Add a link. Its id is smaller than any of a file."""
        number = -(10**9) - len(self.links)
        self.links[number] = Link(number, origin_id, origin_slot, target_id)
        return number


@dataclass
class EditorDocument:
    root: EditorGraph
    subgraphs: dict[str, EditorGraph]
    groups: Mapping[str, Any]
    last_node_id: int


GRAPH, NODE = TypeAdapter(EditorGraph), TypeAdapter(EditorNode)


def read_editor_document(document: Any) -> EditorDocument:
    """The graphs of a workflow in UI format. BadWorkflow names what has the wrong shape."""
    if not isinstance(document, dict):
        raise BadWorkflow("the workflow is no mapping")
    root = _read(GRAPH, {"nodes": document.get("nodes"), "links": document.get("links")})
    definitions = document.get("definitions") or {}
    entries = definitions.get("subgraphs") or [] if isinstance(definitions, dict) else None
    if not isinstance(entries, list):
        raise BadWorkflow("definitions.subgraphs is no list")
    subgraphs = {graph.id: graph for graph in (_read(GRAPH, entry) for entry in entries)}
    if sum(len(graph.nodes) for graph in (root, *subgraphs.values())) > MOST_NODES:
        raise BadWorkflow(f"it has more than {MOST_NODES:,} nodes")
    extra, state = document.get("extra"), document.get("state")
    groups = extra.get("groupNodes") if isinstance(extra, dict) else None
    last = state.get("lastNodeId") if isinstance(state, dict) else document.get("last_node_id")
    last = last if type(last) is int and 0 <= last < 10**9 else 0
    return EditorDocument(root, subgraphs, groups if isinstance(groups, dict) else {}, last)


def read_node(entry: Any) -> EditorNode:
    """One node. BadWorkflow if it has the wrong shape."""
    return _read(NODE, entry)


def _read(adapter: TypeAdapter[T], entry: Any) -> T:
    try:
        return adapter.validate_python(entry)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "a graph"
        raise BadWorkflow(f"{shown(where)}: {shown(first['msg'])}") from None
