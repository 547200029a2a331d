"""Conversion of ComfyUI's UI format to its API format: what the page sends when its user presses Run."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.workflows.editor_graph import BYPASSED, INPUT_BOUNDARY, MOST_NODES, MUTED, read_editor_document
from comfyui_agent.workflows.effort import Effort
from comfyui_agent.workflows.errors import BadWorkflow, NotConvertible, shown
from comfyui_agent.workflows.group_nodes import expand_groups
from comfyui_agent.workflows.input_specs import MADE_BY_PAGE
from comfyui_agent.workflows.loaded_workflow import REROUTE, VIRTUAL, LoadedGraph, LoadedNode, Loading
from comfyui_agent.workflows.node_fields import ABSENT, Field, NodeFields
from comfyui_agent.workflows.node_ids import make_ids_unique
from comfyui_agent.workflows.prompt_texts import Choose, resolve_choices, resolve_references

OLD_PAGE = re.compile(r"0\.0*[1-7](\.|$)")
"""The versions of servers whose page numbers, connects and skips nodes of subgraphs less than later ones."""
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
class _Instance:
    """One use of a graph: the subgraph node that leads there, and where that one is."""

    path: tuple[str, ...]
    graph: LoadedGraph
    host: LoadedNode | None = None
    parent: _Instance | None = None

    def id_of(self, node: LoadedNode) -> str:
        return ":".join([*self.path, node.node.id])

    def below(self, host: LoadedNode, graph: LoadedGraph) -> _Instance:
        return _Instance((*self.path, host.node.id), graph, host, self)


@dataclass(frozen=True)
class _Input:
    """A place where a value is looked for. `wanted` is the type that the reroutes behind it ask for."""

    instance: _Instance
    node: LoadedNode
    at: int
    wanted: str | None = None


def convert(
    document: Any, definitions: Mapping[str, Any], version: str = "", choose: Choose = random.choice
) -> dict[str, Any]:
    """The graph in API format of a workflow in UI format. WorkflowError if it cannot be converted surely.

    `definitions` is a server's `/object_info`, `version` decides how its page converts (unknown ones count as new), and
    `choose` takes one of the options of `{a|b}`.
    """
    is_old, effort = bool(OLD_PAGE.match(version)), Effort()
    try:
        editor = read_editor_document(document)
        if not is_old:
            make_ids_unique(editor)
        expand_groups(editor, definitions, effort)
        root = Loading(editor, definitions, is_old, effort).load(editor.root)
        return _Conversion(is_old, choose, effort).run(root)
    except RecursionError:
        raise BadWorkflow("it is nested too deep") from None


class _Conversion:
    def __init__(self, is_old: bool, choose: Choose, effort: Effort) -> None:
        self._is_old, self._choose, self._effort = is_old, choose, effort
        self._executed: list[tuple[_Instance, LoadedNode, NodeFields]] = []
        self._visited = 0

    def run(self, root: LoadedGraph) -> dict[str, Any]:
        self._collect(_Instance((), root))
        output = {
            instance.id_of(node): self._entry(instance, node, fields) for instance, node, fields in self._executed
        }
        for entry in output.values():  # each list among the inputs is a link: others are wrapped
            inputs = entry["inputs"].items()
            entry["inputs"] = {name: each for name, each in inputs if not isinstance(each, list) or each[0] in output}
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
                if not is_off or instance.path or self._is_old:
                    self._collect(instance.below(node, node.subgraph))
            elif not is_off and node.node.type not in VIRTUAL:
                if node.fields is None:
                    reason = f"the server has no node {shown(node.node.type)}: install it there, or name another server"
                    raise NotConvertible(instance.id_of(node), node.title, reason)
                self._executed.append((instance, node, node.fields))

    def _entry(self, instance: _Instance, node: LoadedNode, fields: NodeFields) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        self._effort.spend(ENTRY_STEPS * (len(node.inputs) + len(fields.all)))
        try:
            for field in fields.all:
                if field.spec.field_type in MADE_BY_PAGE:
                    raise ValueError(f"the page makes the value of {field.name} when it queues")
                if field.is_sent and field.value is not ABSENT:
                    inputs[field.name] = self._wrapped(self._sent(node, field))
            for at, slot in enumerate(node.inputs):
                source = self._source(_Input(instance, node, at))
                if isinstance(source, tuple):
                    inputs[slot.name] = list(source)
                elif source is not None and source.value is not ABSENT:
                    inputs[slot.name] = self._wrapped(source.value)
        except ValueError as error:
            raise NotConvertible(instance.id_of(node), node.title, str(error)) from None
        return {"inputs": inputs, "class_type": node.node.type, "_meta": {"title": node.title}}

    def _wrapped(self, value: Any) -> Any:
        """Lists travel as `{"__value__": […]}`, so that no server takes them for a connection."""
        self._effort.write(len(value if isinstance(value, str) else json.dumps(value)))
        return {"__value__": value} if isinstance(value, list) else value

    def _sent(self, node: LoadedNode, field: Field) -> Any:
        if isinstance(field.value, str):
            if field.is_dynamic_prompt:
                self._effort.spend(len(field.value))
                return resolve_choices(field.value, self._choose)
            if field.name == "filename_prefix" and node.node.type in SAVERS:
                return resolve_references(field.value, self._look_up)
        return field.value

    def _look_up(self, name: str, field_name: str) -> str | None:
        """The value of a field of the node with this name for references, or else with this title."""
        self._effort.spend(2 * len(self._executed))
        found = [each[1:] for each in self._executed if each[1].node.properties.get(ALIAS, each[1].node.type) == name]
        found = found or [each[1:] for each in self._executed if each[1].title == name]
        if len(found) > 1:
            raise ValueError(f"several nodes are called {shown(name)} in its file name: write another one")
        field = found[0][1].named(field_name) if found else None
        if field is None or not isinstance(field.value, (str, int, float)):
            return None
        value = int(field.value) if isinstance(field.value, float) and field.value.is_integer() else field.value
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _source(self, place: _Input) -> tuple[str, int] | Field | None:
        """Where an input gets its value from: a node's output, a field of a subgraph node, or nowhere."""
        for _ in range(MOST_STEPS):
            self._effort.spend(1)
            slot, instance = place.node.inputs[place.at], place.instance
            if slot.link is None:
                return None
            link = instance.graph.graph.links.get(slot.link)
            if link is None:
                raise ValueError(f"its input {shown(slot.name)} is connected to a link that is not there")
            if instance.host is None or instance.parent is None or link.origin_id != INPUT_BOUNDARY:
                step = self._behind(instance, link.origin_id, link.origin_slot, place.wanted or slot.type)
                if not isinstance(step, _Input):
                    return step
                place = step
                continue
            host = instance.host
            if not 0 <= link.origin_slot < len(host.inputs):
                raise ValueError(f"its input {shown(slot.name)} comes from an input that the subgraph lacks")
            outer = host.inputs[link.origin_slot]
            if outer.link is None:
                return host.promoted.get(outer.name)
            place = _Input(instance.parent, host, link.origin_slot)
        raise ValueError("its connections form a circle")

    def _behind(self, instance: _Instance, origin: str, slot: int, wanted: str) -> tuple[str, int] | _Input | None:
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
                return None if at is None else _Input(instance, node, at)
            if node.node.type == REROUTE and node.subgraph is None:
                return _Input(instance, node, slot, wanted) if 0 <= slot < len(node.inputs) else None
            if node.subgraph is None:
                return None if node.node.type in VIRTUAL else (instance.id_of(node), slot)
            graph = node.subgraph.graph
            ends = graph.outputs[slot].linkIds if 0 <= slot < len(graph.outputs) else []
            inner = graph.links.get(ends[0]) if ends else None
            if inner is None:
                return None
            instance = instance.below(node, node.subgraph)
            origin, slot = inner.origin_id, inner.origin_slot
        raise ValueError("its connections form a circle")


def _bypass(node: LoadedNode, slot: int, wanted: str) -> int | None:
    """The input that a bypassed node passes on: of the same place if its type fits, else the first that fits."""
    types = [each.type for each in node.inputs]
    if not types or not 0 <= slot < len(node.outputs):
        return None
    if wanted in ("*", ""):
        return slot if slot < len(types) else 0
    made = node.outputs[slot]
    fitting = [at for at, kind in enumerate(types) if _connects(kind, made) and _connects(kind, wanted)]
    if slot in fitting:
        return slot
    return types.index(wanted) if wanted in types else next(iter(fitting), None)


def _connects(one: str, other: str) -> bool:
    if one in ("", "*") or other in ("", "*"):
        return True
    return not {part.lower() for part in one.split(",")}.isdisjoint(part.lower() for part in other.split(","))
