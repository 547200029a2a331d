"""Making the prompt of a run: template, values, a prefix of its own, no cache where the cache was the trouble."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.placing import NoSuchPlace, place
from comfyui_agent.domain.prompts import SAVES_UNDER, Graph, avoiding_cache, inputs_of, is_editor_format, saving_nodes
from comfyui_agent.engine.naming import stem_of
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store

JOBS_PER_FOLDER = 100
TEMPLATES_KEPT = 64
LONGEST_ID = 200
LARGEST_WORKFLOW = 32 * 1024 * 1024
WORKFLOW_ID = re.compile(r"[\w][\w .-]*")


class Unpreparable(Exception):
    """A job that cannot be made into a prompt: what is wrong, and what to do."""


@dataclass(frozen=True)
class Prepared:
    """A prompt to send, and the nodes that must leave a result."""

    graph: Graph
    expected: frozenset[str] | None


class Preparing:
    """Makes prompts. Templates are read once and kept, the most recently used ones."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._kept: OrderedDict[str, Graph] = OrderedDict()

    async def prepare(self, leased: Leased) -> Prepared:
        """The prompt of a run; the same for whoever takes it over."""
        try:
            stem_of(leased, self._workspace)
        except ValueError as error:
            raise Unpreparable(str(error)) from None
        graph = await self._graph(leased)
        try:
            graph = place(graph, _values(leased.inputs))
        except NoSuchPlace as error:
            raise Unpreparable(f"an input has no place: {error}") from None
        node = leased.output_node
        if node is not None and node not in graph:
            raise Unpreparable(f"outputs.node {node!r} is not a node of the workflow")
        if leased.last_failure == FailureClass.OUTPUT.value:
            graph = avoiding_cache(graph, leased.prompt_id)
        folder = f"e3_{self._store.identity}/{leased.lease.job_id // JOBS_PER_FOLDER}"
        return Prepared(
            _saving_apart(graph, f"{folder}/{leased.prompt_id}"), None if node is None else frozenset({node})
        )

    async def _graph(self, leased: Leased) -> Graph:
        key = leased.template_hash
        if key is None:
            return self._from_file(leased.workflow_id)
        if key not in self._kept:
            template = await self._store.template(key)
            if template is None:
                raise Unpreparable(f"its workflow {key[:12]} is not in the database any more: submit the job again")
            self._kept[key] = template.graph()
            while len(self._kept) > TEMPLATES_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _from_file(self, workflow_id: str) -> Graph:
        """A row made by hand names its workflow only: `workflows/<workflow_id>.json`."""
        path = self._workspace.workflow(workflow_id)
        if not WORKFLOW_ID.fullmatch(workflow_id) or len(workflow_id) > LONGEST_ID or not path.is_file():
            raise Unpreparable(f"workflow_id {workflow_id[:LONGEST_ID]!r} is not known: there is no {path}")
        try:
            if path.stat().st_size > LARGEST_WORKFLOW:
                raise Unpreparable(f"{path} is too large for a workflow")
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise Unpreparable(f"{path} cannot be read: {error}") from None
        return read_workflow(document, str(path))


def read_workflow(document: Any, name: str) -> Graph:
    """A graph in API format, bare or wrapped as the body of a post."""
    if isinstance(document, dict) and isinstance(document.get("prompt"), dict):
        document = document["prompt"]
    if not isinstance(document, dict) or not document:
        raise Unpreparable(f"{name} is not a workflow in API format")
    if is_editor_format(document):
        raise Unpreparable(f"{name} is a workflow as the editor saves it: export it with Workflow → Export (API)")
    return document


def _values(text: str | None) -> Mapping[str, Any]:
    try:
        values = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise Unpreparable(f"its inputs are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise Unpreparable("its inputs are not an object of places and values")
    return values


def _saving_apart(graph: Graph, prefix: str) -> dict[str, Any]:
    """Every node that saves does so under a prefix of this run, in a folder that stays small."""
    saving = saving_nodes(graph)
    apart = dict(graph)
    for node_id in saving:
        own = prefix if len(saving) == 1 else f"{prefix}_{re.sub(r'[^A-Za-z0-9]+', '-', node_id)}"
        apart[node_id] = {**graph[node_id], "inputs": {**inputs_of(graph, node_id), SAVES_UNDER: own}}
    return apart
