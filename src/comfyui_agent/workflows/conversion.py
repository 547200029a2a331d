"""Conversion of ComfyUI's UI format to its API format: what the page sends when its user presses Run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.workflows.editor_graph import BYPASSED, INPUT_BOUNDARY, MOST_NODES, MUTED, read_editor_document
from comfyui_agent.workflows.effort import Effort
from comfyui_agent.workflows.errors import BadWorkflow, NotConvertible, shown
from comfyui_agent.workflows.group_nodes import expand_groups
from comfyui_agent.workflows.input_specs import MADE_BY_PAGE
from comfyui_agent.workflows.loaded_workflow import REROUTE, VIRTUAL, LoadedGraph, LoadedNode, Loading
from comfyui_agent.workflows.node_fields import ABSENT, Field
from comfyui_agent.workflows.node_ids import make_ids_unique
from comfyui_agent.workflows.prompt_texts import resolve_choices, resolve_references

MOST_STEPS = 1_000
ENTRY_STEPS = 5
"""For each field and input of a node."""
ALIAS = "Node name for S&R"
DEEPEST = 50
SAVERS = frozenset(
    "SaveImage SaveImageAdvanced SaveSVGNode SaveVideo SaveAnimatedWEBP SaveWEBM SaveAudio SaveAudioMP3 SaveAudioOpus "
    "SaveAudioAdvanced SaveGLB Save3DAdvanced SaveGaussianSplat SavePointCloud SaveAnimatedPNG CLIPSave VAESave "
    "ModelSave LoraSave SaveLatent".split()
)
"""The nodes in whose file names the page fills in references."""


@dataclass(frozen=True)
class Dialect:
    """What differs between the pages of ComfyUI's versions."""

    wraps_lists: bool = True
    """Lists travel as `{"__value__": […]}`, so that no server takes them for a connection."""
    connects_promoted: bool = True
    """A promoted field takes the value of the subgraph node, also if it is not connected to the subgraph's end."""
    numbers_anew: bool = True
    """Nodes of subgraphs whose id another node has get a new one."""
    skips_inactive: bool = True
    """Nodes inside a muted or bypassed subgraph node are left out."""

    @classmethod
    def of_version(cls, version: str) -> Dialect:
        """The dialect of a server's page, by the server's version. Unknown versions count as new."""
        parts = version.split(".")
        number = [int(part) if part.isascii() and part.isdigit() else 0 for part in parts[:2]]
        is_old = number[0] == 0 and len(number) == 2 and 0 < number[1] < 8
        return cls(connects_promoted=False, numbers_anew=False, skips_inactive=False) if is_old else cls()


@dataclass(frozen=True)
class _Instance:
    """One use of a graph: the subgraph nodes that lead there."""

    path: tuple[str, ...]
    graph: LoadedGraph
    host: LoadedNode | None = None
    parent: _Instance | None = None

    def id_of(self, node: LoadedNode) -> str:
        return ":".join([*self.path, node.node.id])


@dataclass(frozen=True)
class _Value:
    value: Any


_Source = tuple[str, int] | _Value | None


def convert(
    document: Any,
    definitions: Mapping[str, Any],
    dialect: Dialect | None = None,
    choose: Callable[[Sequence[str]], str] = random.choice,
) -> dict[str, Any]:
    """The graph in API format of a workflow in UI format. WorkflowError if it cannot be converted surely.

    `definitions` is a server's `/object_info`; `choose` takes one of the options of `{a|b}`.
    """
    dialect = dialect or Dialect()
    try:
        editor = read_editor_document(document)
        if dialect.numbers_anew:
            make_ids_unique(editor)
        effort = Effort()
        expand_groups(editor, definitions, effort)
        root = Loading(editor, definitions, dialect.connects_promoted, effort).load()
        return _Conversion(_Instance((), root), dialect, choose).run()
    except RecursionError:
        raise BadWorkflow("it is nested too deep") from None


class _Conversion:
    def __init__(self, root: _Instance, dialect: Dialect, choose: Callable[[Sequence[str]], str]) -> None:
        self._root, self._dialect, self._choose, self._effort = root, dialect, choose, root.graph.effort
        self._executed: list[tuple[_Instance, LoadedNode]] = []
        self._links: dict[tuple[int, str], dict[str, Any]] = {}
        self._visited = 0

    def run(self) -> dict[str, Any]:
        self._collect(self._root)
        output = {instance.id_of(node): self._entry(instance, node) for instance, node in self._executed}
        for (_, name), inputs in self._links.items():
            if inputs[name][0] not in output:
                del inputs[name]
        return output

    def _collect(self, instance: _Instance) -> None:
        """Find the nodes that the prompt has."""
        if len(instance.path) > DEEPEST:
            raise BadWorkflow(f"its subgraphs are nested more than {DEEPEST} deep")
        for node in instance.graph.nodes.values():
            self._visited += 1
            if self._visited > MOST_NODES:
                raise BadWorkflow(f"with its subgraphs it has more than {MOST_NODES:,} nodes")
            is_off = node.node.mode in (MUTED, BYPASSED)
            if node.subgraph is not None:
                if not (is_off and not instance.path and self._dialect.skips_inactive):
                    self._collect(_Instance((*instance.path, node.node.id), node.subgraph, node, instance))
            elif not is_off and node.node.type not in VIRTUAL:
                if node.fields is None:
                    reason = f"the server has no node {shown(node.node.type)}: install it there, or name another server"
                    raise NotConvertible(instance.id_of(node), node.title, reason)
                self._executed.append((instance, node))

    def _entry(self, instance: _Instance, node: LoadedNode) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        self._effort.spend(ENTRY_STEPS * (len(node.inputs) + (len(node.fields.all) if node.fields is not None else 0)))
        try:
            for field in node.fields.all if node.fields is not None else ():
                value = self._sent(node, field) if field.is_sent else ABSENT
                if value is not ABSENT:
                    inputs[field.name] = self._wrapped(value)
            for at, slot in enumerate(node.inputs):
                source = self._source(instance, node, at)
                if isinstance(source, tuple):
                    inputs[slot.name] = list(source)
                    self._links[id(inputs), slot.name] = inputs
                elif source is not None and source.value is not ABSENT:
                    inputs[slot.name] = self._wrapped(source.value)
            for field in node.fields.all if node.fields is not None else ():
                if field.spec is not None and field.spec.field_type in MADE_BY_PAGE and field.is_sent:
                    raise ValueError(f"the page makes the value of {field.name} when it queues")
        except ValueError as error:
            raise NotConvertible(instance.id_of(node), node.title, str(error)) from None
        return {"inputs": inputs, "class_type": node.node.type, "_meta": {"title": node.title}}

    def _wrapped(self, value: Any) -> Any:
        self._effort.write(len(value if isinstance(value, str) else json.dumps(value)))
        return {"__value__": value} if isinstance(value, list) and self._dialect.wraps_lists else value

    def _sent(self, node: LoadedNode, field: Field) -> Any:
        if not isinstance(field.value, str):
            return field.value
        if field.is_dynamic_prompt:
            self._effort.spend(len(field.value))
            return resolve_choices(field.value, self._choose)
        if field.name == "filename_prefix" and node.node.type in SAVERS:
            return resolve_references(field.value, self._look_up)
        return field.value

    def _look_up(self, name: str, field_name: str) -> str | None:
        """The value of a field of the node with this name for references, or else with this title."""
        self._effort.spend(2 * len(self._executed))
        nodes = [node for _, node in self._executed]
        named = [each for each in nodes if each.node.properties.get(ALIAS, each.node.type) == name]
        found = named or [each for each in nodes if each.title == name]
        if len(found) > 1:
            raise ValueError(f"several nodes are called {shown(name)} in its file name: write another one")
        field = found[0].fields.named(field_name) if found and found[0].fields is not None else None
        if field is None or not isinstance(field.value, (str, int, float)):
            return None
        value = int(field.value) if isinstance(field.value, float) and field.value.is_integer() else field.value
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _source(self, instance: _Instance, node: LoadedNode, at: int) -> _Source:
        """Where an input gets its value from: a node's output, a value of a subgraph node, or nowhere."""
        wanted: str | None = None
        for _ in range(MOST_STEPS):
            self._effort.spend(1)
            slot = node.inputs[at]
            if slot.link is None:
                return None
            link = instance.graph.graph.links.get(slot.link)
            if link is None:
                raise ValueError(f"its input {shown(slot.name)} is connected to a link that is not there")
            if instance.host is not None and instance.parent is not None and link.origin_id == INPUT_BOUNDARY:
                host, above, at = instance.host, instance.parent, link.origin_slot
                if not 0 <= at < len(host.inputs):
                    raise ValueError(f"its input {shown(slot.name)} comes from an input that the subgraph lacks")
                if host.inputs[at].link is None:
                    name = host.inputs[at].name
                    return _Value(host.promoted[name]) if name in host.promoted else None
                instance, node, wanted = above, host, None
                continue
            step = self._behind(instance, link.origin_id, link.origin_slot, wanted or slot.type)
            if step is None or isinstance(step[1], int):
                return step
            instance, node, at, wanted = step
        raise ValueError("its connections form a circle")

    def _behind(
        self, instance: _Instance, origin: str, slot: int, wanted: str
    ) -> tuple[str, int] | tuple[_Instance, LoadedNode, int, str | None] | None:
        """An output followed to the node that makes it, or to the input of a node that only passes it on."""
        for _ in range(DEEPEST * 2):
            node = instance.graph.nodes.get(origin)
            if node is None:
                raise ValueError(f"it is connected to node {shown(origin)}, which is not there")
            if node.node.mode == MUTED:
                return None
            self._effort.spend(1)
            if node.node.mode == BYPASSED:
                self._effort.spend(len(node.inputs))
                at = _bypass(node, slot, wanted)
                return None if at is None else (instance, node, at, None)
            if node.subgraph is None:
                if node.node.type == REROUTE:
                    return (instance, node, slot, wanted) if slot < len(node.inputs) else None
                return None if node.node.type in VIRTUAL else (instance.id_of(node), slot)
            graph = node.subgraph.graph
            ends = graph.outputs[slot].linkIds if 0 <= slot < len(graph.outputs) else []
            inner = graph.links.get(ends[0]) if ends else None
            if inner is None:
                return None
            instance = _Instance((*instance.path, node.node.id), node.subgraph, node, instance)
            origin, slot = inner.origin_id, inner.origin_slot
        raise ValueError("its connections form a circle")


def _bypass(node: LoadedNode, slot: int, wanted: str) -> int | None:
    """The input that a bypassed node passes on: of the same place if its type fits, else the first that fits."""
    types = [each.type for each in node.inputs]
    if not types or not 0 <= slot < len(node.outputs):
        return None
    made = node.outputs[slot]
    if wanted in ("*", ""):
        return slot if slot < len(types) else 0

    def fits(kind: str) -> bool:
        return _connects(kind, made) and _connects(kind, wanted)

    if slot < len(types) and fits(types[slot]):
        return slot
    return types.index(wanted) if wanted in types else next((at for at, kind in enumerate(types) if fits(kind)), None)


def _connects(one: str, other: str) -> bool:
    if one in ("", "*") or other in ("", "*"):
        return True
    return not {part.lower() for part in one.split(",")}.isdisjoint(part.lower() for part in other.split(","))
