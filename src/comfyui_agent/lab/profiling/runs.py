"""One run of a workflow, and how its time splits into loading, sampling and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.domain.node_classes import FILE_INPUTS, MODEL_ENDINGS
from comfyui_agent.domain.prompts import Graph, class_of, inputs_of
from comfyui_agent.domain.text_enum import TextEnum
from comfyui_agent.lab.measurement.statistics import median
from comfyui_agent.lab.profiling.timeline import NodeTime

SAMPLING_INPUTS = frozenset({"sampler_name", "sampler", "sigmas", "latent_image"})
SAMPLER = re.compile("sampler", re.IGNORECASE)
LOADER = re.compile("Loader")


class Kind(TextEnum):
    """A cold run follows `/free`; a warm one finds in memory what the run before left there."""

    COLD = "cold"
    WARM = "warm"


@dataclass(frozen=True)
class Run:
    """One run. Times are seconds, `seconds` and `ended_seconds` since the trace began; None is not known."""

    kind: Kind
    prompt_id: str
    started_at: str
    seconds: float
    ended_seconds: float
    duration_sec: float
    exec_sec: float | None
    queue_sec: float | None
    transfer_sec: float
    cached_nodes: frozenset[str]
    cached: bool
    """Whether the server's cache answered, so that nothing was measured."""
    nodes: tuple[NodeTime, ...]
    moments: tuple[Moment, ...]
    peak_vram_mb: float | None = None


@dataclass(frozen=True)
class Split:
    """Seconds of loading models, of sampling, and of all else. None if nothing was heard on the websocket."""

    model_load_sec: float | None
    sampling_sec: float | None
    other_sec: float | None


def typical_steps(runs: Iterable[Run]) -> dict[str, float]:
    """The usual seconds of one step, by node: the median over all runs.

    A node that takes a single step is known by its warm runs, where nothing is loaded before it.
    """
    gaps: dict[str, list[float]] = {}
    single: dict[str, list[float]] = {}
    for run in runs:
        for node in run.nodes:
            gaps.setdefault(node.node_id, []).extend(node.step_gaps)
            if run.kind is Kind.WARM and node.first_step_sec is not None:
                single.setdefault(node.node_id, []).append(node.first_step_sec)
    middles = {node_id: median(gaps[node_id] or single.get(node_id, [])) for node_id in gaps}
    return {node_id: seconds for node_id, seconds in middles.items() if seconds is not None}


def split(run: Run, graph: Graph, typical: Mapping[str, float]) -> Split:
    """Loading is the time of loader nodes, and the time before a node's first step beyond one usual step."""
    if not run.nodes:
        return Split(None, None, None)
    loading = sampling = 0.0
    for node in run.nodes:
        before = _loading_in(node, graph, typical)
        loading += before
        if node.steps and is_sampler(graph, node.node_id):
            sampling += node.seconds - before
    whole = run.exec_sec if run.exec_sec is not None else sum(node.seconds for node in run.nodes)
    return Split(loading, sampling, max(0.0, whole - loading - sampling))


def _loading_in(node: NodeTime, graph: Graph, typical: Mapping[str, float]) -> float:
    if is_loader(graph, node.node_id):
        return node.seconds
    if node.first_step_sec is None or node.node_id not in typical:
        return 0.0
    return min(node.seconds, max(0.0, node.first_step_sec - typical[node.node_id]))


def is_loader(graph: Graph, node_id: str) -> bool:
    """Whether a node loads a model: it names a model file, or is called a loader and takes no media."""
    inputs = inputs_of(graph, node_id)
    if any(isinstance(value, str) and value.lower().endswith(MODEL_ENDINGS) for value in inputs.values()):
        return True
    return bool(LOADER.search(class_of(graph, node_id))) and not FILE_INPUTS & inputs.keys()


def is_sampler(graph: Graph, node_id: str) -> bool:
    return bool(SAMPLER.search(class_of(graph, node_id)) or SAMPLING_INPUTS & inputs_of(graph, node_id).keys())


def measured_runs(runs: Sequence[Run], kind: Kind) -> list[Run]:
    """The runs of a kind, without those that the server's cache answered."""
    return [run for run in runs if run.kind is kind and not run.cached]
