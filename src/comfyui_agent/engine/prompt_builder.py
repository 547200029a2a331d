"""Making the prompt of a run: template, values, a prefix of its own, no cache where the cache was the trouble."""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.config.sealing import CannotOpen, SecretBox
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflow
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.binding import Unbindable
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import Needs, needs_of_template
from comfyui_agent.domain.node_classes import loads_from_outside
from comfyui_agent.domain.prompts import SAVES_UNDER, Graph, NoSuchPlace, avoiding_cache, inputs_of, place, saving_nodes
from comfyui_agent.engine.collector import Unkeepable, expect_result
from comfyui_agent.engine.result_names import stem_of
from comfyui_agent.engine.server_inputs import uploads_of
from comfyui_agent.fleet.workflow_conversion import open_workflows
from comfyui_agent.pools import INTAKE
from comfyui_agent.store import operations as ops
from comfyui_agent.store.needs import Described
from comfyui_agent.store.posted_prompts import ClientPrompt
from comfyui_agent.store.records import Leased
from comfyui_agent.store.store import Store

JOBS_PER_FOLDER = 100
TEMPLATES_KEPT = 64


class NotBuildable(Exception):
    """A job cannot be made into a prompt; the message says what is wrong and what to do."""


@dataclass(frozen=True)
class BuiltPrompt:
    """A prompt to send, and the nodes that must leave a result."""

    graph: Graph
    expected: frozenset[str] | None
    plain: Graph
    """The template with the values of the job, and nothing else."""
    client: ClientPrompt | None = None
    """Who posted it at the gateway, and what else they sent."""


class PromptBuilder:
    """Makes prompts. Templates are read once and kept."""

    def __init__(self, store: Store, workspace: Workspace) -> None:
        self._store = store
        self._workspace = workspace
        self._workflows = open_workflows(workspace)
        self._templates: dict[str, Graph] = {}
        self._turn = asyncio.Lock()

    async def prepare(self, leased: Leased) -> BuiltPrompt:
        """The prompt of a run; the same for whoever takes it over."""
        try:
            stem_of(leased, self._workspace)
            if leased.file_path and (path := self._workspace.inside(leased.file_path)).is_file():
                await expect_result(self._store, leased, self._workspace.shown(path))
        except (ValueError, Unkeepable) as error:
            raise NotBuildable(str(error)) from None
        except OSError as error:
            raise NotBuildable(f"file_path cannot be used: {error.strerror}: give the job another") from None
        graph, defaults = await self._graph(leased)
        try:
            own = _values(leased.inputs)
            plain = place(graph, own)
            given = {**defaults, **own}
            graph = place(graph, given) if defaults else plain
            # What is uploaded gets another name, at the server.
            _expect_files_inside(place(graph, dict.fromkeys(uploads_of(leased.pictures), "")), given)
        except NoSuchPlace as error:
            raise NotBuildable(f"an input has no place: {error}") from None
        node = leased.output_node
        if node is not None and node not in graph:
            raise NotBuildable(f"outputs.node {node!r} is not a node of the workflow")
        if leased.last_failure == FailureClass.OUTPUT.value:
            graph = avoiding_cache(graph, leased.prompt_id)
        folder = f"e3_{self._store.identity}/{leased.lease.job_id // JOBS_PER_FOLDER}"
        expected = None if node is None else frozenset({node})
        client = await self._store.run(ops.prompt_of_job, leased.lease.job_id) if leased.is_posted else None
        if client is not None:
            client = self._with_secrets(client)
            expected = frozenset()  # a client may want no more than a text or a preview
        apart = _saving_apart(graph, f"{folder}/{leased.prompt_id}", are_posted=client is not None)
        return BuiltPrompt(apart, expected, plain, client)

    def _with_secrets(self, client: ClientPrompt) -> ClientPrompt:
        """What a client posted, with the keys that were sealed."""
        if client.secrets is None:
            return client
        try:
            opened = SecretBox(self._workspace.secrets_key).open(client.secrets)
        except CannotOpen as error:
            remedy = "give all machines the same database/secrets.key, and post the prompt again"
            raise NotBuildable(f"its API keys cannot be read here: {error}: {remedy}") from None
        return replace(client, extra_data={**client.extra_data, **opened}, secrets=None)

    async def needs_of(self, job: Described) -> Needs | None:
        """What a row needs that was made by hand. None if it cannot become a prompt."""
        try:
            graph, defaults = await self._graph(job)
            return needs_of_template(Template.of(graph), {**defaults, **_values(job.inputs)})
        except NotBuildable:
            return None

    async def _graph(self, leased: Leased | Described) -> tuple[Graph, dict[str, Any]]:
        key = leased.template_hash
        if key is None:
            async with self._turn:
                return await INTAKE.run(self._by_id, leased)
        if key not in self._templates:
            template = await self._store.run(ops.find_template, key)
            if template is None:
                raise NotBuildable(f"its workflow {key[:12]} is not in the database any more: submit the job again")
            if len(self._templates) >= TEMPLATES_KEPT:
                self._templates.clear()
            self._templates[key] = template.graph()
        return self._templates[key], {}

    def _by_id(self, leased: Leased | Described) -> tuple[Graph, dict[str, Any]]:
        """A row made by hand names its workflow only: the template with its defaults. What is required has to be there,
        as a default or by its place."""
        trouble = ""
        try:
            self._workflows.refresh()
        except Complaints as error:  # what it said before still counts
            trouble = f"; besides, {error}"
        try:
            workflow = self._workflows.find(leased.workflow_id)
            _expect_required(workflow, _values(leased.inputs))
            recipe = replace(workflow.recipe, required_inputs=())
            job_id = leased.id if isinstance(leased, Described) else leased.lease.job_id
            return workflow.graph, workflow.bound({}, seed=job_id, recipe=recipe)[0]
        except (NoWorkflow, NoSuchPlace, Unbindable) as error:
            raise NotBuildable(self._workspace.without_root(f"workflow_id: {error}{trouble}")) from None


def _expect_required(workflow: Workflow, given: Collection[str]) -> None:
    """NotBuildable if an input that is required has no default, and no value at each of its places."""
    recipe, missing = workflow.recipe, []
    for name in recipe.required_inputs:
        if recipe.defaults.get(name) is None:
            places = workflow.places.find(name, recipe)
            missing += [] if places and set(places) <= set(given) else [name]
    if missing:
        raise NotBuildable(
            f"workflow_id: {recipe.workflow_id} needs {', '.join(missing)}: submit a job file that gives them, write "
            'defaults for them in workflows.yaml, or give the row inputs by place, such as {"6.text": "a fox"}'
        )


def _expect_files_inside(graph: Graph, given: Collection[str]) -> None:
    """NotBuildable if a node would load a file from outside the server's own folders: old servers hand it out."""
    for node_id in graph:
        for name, value in inputs_of(graph, node_id).items():
            place = f"{node_id}.{name}"
            if loads_from_outside(name, value, is_given=place in given):
                raise NotBuildable(f"{place} names a file outside the server's folders: name one that lies in them")


def _values(text: str | None) -> Mapping[str, Any]:
    try:
        values = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise NotBuildable(f"its inputs are not JSON: {error}") from None
    if not isinstance(values, dict):
        raise NotBuildable("its inputs are not an object of places and values")
    return values


def _leads_out(prefix: str) -> bool:
    """Whether a prefix leaves the server's folder. Then the server says so."""
    return posixpath.isabs(prefix) or posixpath.normpath(prefix).startswith("..")


def _saving_apart(graph: Graph, prefix: str, *, are_posted: bool) -> dict[str, Any]:
    """Every node that saves does so under a prefix of this run, in a folder that stays small.

    What a client of the gateway wants to save outside the server's folder is refused by the server, in its own words.
    """
    saving = [each for each, given in saving_nodes(graph).items() if not (are_posted and _leads_out(given))]
    apart = dict(graph)
    for node_id in saving:
        own = prefix if len(saving) == 1 else f"{prefix}_{re.sub(r'[^A-Za-z0-9]+', '-', node_id)}"
        apart[node_id] = {**graph[node_id], "inputs": {**inputs_of(graph, node_id), SAVES_UNDER: own}}
    return apart
