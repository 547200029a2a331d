"""Node ids that are unique over all graphs of a workflow, as newer pages make them."""

from __future__ import annotations

from itertools import count

from comfyui_agent.workflows.editor_graph import EditorDocument, EditorGraph, EditorNode


def make_ids_unique(document: EditorDocument) -> None:
    """Give each node of a subgraph whose id is taken a new one, and change what names it."""
    used = set(document.root.nodes)
    last = max(document.last_node_id, *map(_number, used), 0)
    renamed: dict[str, dict[str, str]] = {}
    for graph in document.subgraphs.values():
        names = renamed[graph.id] = {}
        for node_id in graph.nodes:
            if node_id in used:
                last = next(number for number in count(last + 1) if str(number) not in used)
                names[node_id] = str(last)
            last = max(last, _number(node_id))
            used.add(names.get(node_id, node_id))
        _rename(graph, names)
    for graph in (document.root, *document.subgraphs.values()):
        for node in graph.nodes.values():
            if names := renamed.get(node.type, {}):
                _rename_proxies(node, names)


def _number(node_id: str) -> int:
    return int(node_id) if node_id.isascii() and node_id.isdigit() and len(node_id) < 10 else 0


def _rename(graph: EditorGraph, names: dict[str, str]) -> None:
    for node in graph.nodes.values():
        node.id = names.get(node.id, node.id)
    graph.nodes = {node.id: node for node in graph.nodes.values()}
    for link in graph.links.values():
        link.origin_id = names.get(link.origin_id, link.origin_id)
        link.target_id = names.get(link.target_id, link.target_id)


def _rename_proxies(node: EditorNode, names: dict[str, str]) -> None:
    entries = node.properties.get("proxyWidgets")
    if isinstance(entries, list):
        changed = [
            [names.get(str(each[0]), each[0]), *each[1:]] if isinstance(each, list) and each else each
            for each in entries
        ]
        node.properties = {**node.properties, "proxyWidgets": changed}
