"""What the time of one run was spent on: its nodes, and loading, sampling and the rest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.domain.node_classes import FILE_INPUTS
from comfyui_agent.domain.prompts import Graph, class_of, inputs_of
from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.payloads import names_model
from comfyui_agent.lab.reports.profile import NodeSeconds, RunFigures

SAMPLING_INPUTS = frozenset({"sampler_name", "sampler", "sigmas", "latent_image"})
SAMPLER = re.compile("sampler", re.IGNORECASE)


class Kind(TextEnum):
    """A cold run follows `/free`; a warm one finds in memory what the run before left there."""

    COLD = "cold"
    WARM = "warm"


def node_times(moments: Sequence[Moment], graph: Graph) -> list[NodeSeconds]:
    """The seconds of each node that ran, in the order in which they began. A node lasts until the next one begins or
    the prompt ends. What a node expands into counts as the node itself."""
    found: dict[str, NodeSeconds] = {}
    began: dict[str, float] = {}
    stepped: dict[str, float] = {}
    current: NodeSeconds | None = None
    before = 0.0
    for moment in moments:
        if current is not None:
            current.seconds = (current.seconds or 0.0) + moment.at - before
        before = moment.at
        node_id = _owner(graph, moment.node_id)
        if moment.kind == "step" and node_id in found:
            node = found[node_id]
            node.steps = max(node.steps, moment.steps)
            if node_id in stepped:
                node.step_gaps.append(moment.at - stepped[node_id])
            elif node.first_step_sec is None:
                node.first_step_sec = moment.at - began[node_id]
            stepped[node_id] = moment.at
        elif moment.kind in ("success", "end"):
            current = None
        elif moment.kind == "node" and (current is None or current.node_id != node_id):
            kind = class_of(graph, node_id)
            new = NodeSeconds(node_id=node_id, class_type=kind, seconds=0.0, first_step_sec=None, steps=0)
            current = found.setdefault(node_id, new)
            began[node_id] = moment.at
            stepped.pop(node_id, None)
    return list(found.values())


def _owner(graph: Graph, node_id: str) -> str:
    """The node of the workflow that a node belongs to: ComfyUI names what node 5 expands into `5.0.0.1`."""
    while node_id not in graph and "." in node_id:
        node_id = node_id.rpartition(".")[0]
    return node_id


def typical_steps(runs: Iterable[RunFigures]) -> dict[str, float]:
    """The median seconds of one step, by node. A single step is known by the warm runs, which load nothing."""
    gaps: dict[str, list[float]] = defaultdict(list)
    single: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for node in run.nodes:
            gaps[node.node_id] += node.step_gaps
            if run.kind == Kind.WARM and node.first_step_sec is not None:
                single[node.node_id].append(node.first_step_sec)
    steps = {node_id: found or single[node_id] for node_id, found in gaps.items()}
    return {node_id: median(found) for node_id, found in steps.items() if found}


def split(run: RunFigures, graph: Graph, typical: Mapping[str, float]) -> None:
    """Set the seconds of loading, of sampling and of the rest; None if nothing was heard on the websocket. Loading is
    the time of loader nodes, and the time before a node's first step beyond one usual step."""
    run.model_load_sec = run.sampling_sec = run.other_sec = None
    if not run.nodes:
        return
    loading = sampling = whole = 0.0
    for node in run.nodes:
        seconds = node.seconds or 0.0
        before = 0.0
        if is_loader(graph, node.node_id):
            before = seconds
        elif node.first_step_sec is not None and node.node_id in typical:
            before = min(seconds, max(0.0, node.first_step_sec - typical[node.node_id]))
        whole += seconds
        loading += before
        if node.steps and is_sampler(graph, node.node_id):
            sampling += seconds - before
    rest = (whole if run.exec_sec is None else run.exec_sec) - loading - sampling
    run.model_load_sec, run.sampling_sec, run.other_sec = loading, sampling, max(0.0, rest)


def is_loader(graph: Graph, node_id: str) -> bool:
    """Whether a node loads a model: it names a model file, or is called a loader and takes no media."""
    is_named_so = "Loader" in class_of(graph, node_id) and not FILE_INPUTS & inputs_of(graph, node_id).keys()
    return is_named_so or names_model(graph, node_id)


def is_sampler(graph: Graph, node_id: str) -> bool:
    return bool(SAMPLER.search(class_of(graph, node_id)) or SAMPLING_INPUTS & inputs_of(graph, node_id).keys())
