"""Group nodes of older pages, turned into subgraphs: node 0 of group node 5 becomes `5:0`. Unusual ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.workflows.editor_graph import (
    GROUP_PREFIXES,
    INPUT_BOUNDARY,
    OUTPUT_BOUNDARY,
    Boundary,
    EditorDocument,
    EditorGraph,
    EditorNode,
    read_node,
)
from comfyui_agent.workflows.effort import Effort
from comfyui_agent.workflows.errors import NotConvertible, WorkflowError
from comfyui_agent.workflows.input_specs import DYNAMIC_COMBO, InputSpec, NodeClass, companions

REMEDY = "open it in ComfyUI's page, which makes a subgraph of it, and save it again"
MOST_GROUPS = 500
GROUP_STEPS = 100
"""For each node of a group, which is read anew each time."""


def expand_groups(document: EditorDocument, definitions: Mapping[str, Any], effort: Effort) -> None:
    """Make each group node of a document's root a subgraph node."""
    hosts = [node for node in document.root.nodes.values() if node.type.startswith(GROUP_PREFIXES)]
    for host in hosts[:MOST_GROUPS] if document.groups else []:
        group = document.groups.get(host.type[len(GROUP_PREFIXES[0]) :])
        nodes = group.get("nodes") if isinstance(group, dict) else None
        effort.spend(GROUP_STEPS * len(nodes) if isinstance(nodes, list) else 0)
        try:
            graph = _Group(host, group, definitions).graph
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, WorkflowError):
            raise NotConvertible(host.id, host.title or host.type, f"its group is unusual: {REMEDY}") from None
        host.type = graph.id
        document.subgraphs[graph.id] = graph


class _Group:
    def __init__(self, host: EditorNode, group: Any, definitions: Mapping[str, Any]) -> None:
        self._host, self._seen, self._count = host, dict[str, int](), 0
        self._nodes = [read_node({**each, "id": at, "mode": 0}) for at, each in enumerate(group["nodes"])]
        self._classes = [NodeClass(node.type, definitions[node.type]) for node in self._nodes]
        nodes = {node.id: node for node in self._nodes}
        self.graph = EditorGraph(nodes, id=f"group of {host.id}", name=host.type)
        if any(group.get("config") or ()) or any(kind.takes_upload for kind in self._classes):
            raise ValueError
        self._connect_inside(group["links"])
        converted = [self._add_fields(node, kind) for node, kind in zip(self._nodes, self._classes, strict=True)]
        for node, specs in zip(self._nodes, converted, strict=True):
            for spec in specs:
                self._add_input(node, spec.name)
        if self._count != len(host.widgets_values or []):
            raise ValueError
        self._add_outputs(group["links"], group.get("external") or [])

    def _connect_inside(self, links: list[Any]) -> None:
        for node in self._nodes:
            for slot in node.inputs:
                slot.link = None
        for origin, origin_slot, target, target_slot, *_ in (each for each in links if None not in each[:4]):
            self._nodes[target].inputs[target_slot].link = self.graph.connect(str(origin), origin_slot, str(target))

    def _add_fields(self, node: EditorNode, kind: NodeClass) -> list[InputSpec]:
        """Take the values of a node from its group node, and connect its inputs. The converted fields come later."""
        values: dict[str, Any] = {}
        given = {slot.name: slot for slot in node.inputs}
        converted, sockets = [], []
        for spec in kind.declared:
            if spec.type == DYNAMIC_COMBO:
                raise ValueError
            if not spec.has_field:
                sockets.append(spec)
            elif spec.name in given:
                converted.append(spec)
            else:
                self._new_name(node, spec.name)
                values[spec.name] = self._host.widgets_values[self._count]  # type: ignore[index]
                self._count += 1 + len(companions(spec))
        for spec in sockets:
            self._add_input(node, spec.name)
        node.widgets_values = values
        return converted

    def _add_input(self, node: EditorNode, name: str) -> None:
        slot = next((each for each in node.inputs if each.name == name), None)
        if slot is not None and slot.link is None:
            slot.link = self.graph.connect(INPUT_BOUNDARY, len(self.graph.inputs), node.id)
            self.graph.inputs.append(Boundary(self._new_name(node, name), slot.type, [slot.link]))

    def _new_name(self, node: EditorNode, name: str) -> str:
        """The name on the group node: with the inner node's title if another one has it already."""
        key = name
        if name in self._seen:
            title = f"{node.title or node.type} "
            key = f"{title}{name}"
            name = f"{title}{self._seen[key]} {name}" if key in self._seen else key
        self._seen[key] = self._seen.get(key, 1) + 1
        return name

    def _add_outputs(self, links: list[Any], external: list[Any]) -> None:
        used = {(each[0], each[1]) for each in links}
        shown = {(each[0], each[1]) for each in external}
        for at, kind in enumerate(self._classes):
            for slot, made in enumerate(kind.outputs):
                if (at, slot) not in used or (at, slot) in shown:
                    link = self.graph.connect(str(at), slot, OUTPUT_BOUNDARY)
                    self.graph.outputs.append(Boundary(made, made, [link]))
