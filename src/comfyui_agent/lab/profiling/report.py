"""From the runs of a profile to its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.domain.prompts import Graph, class_of
from comfyui_agent.lab.measurement.moments import utc_text
from comfyui_agent.lab.measurement.statistics import median
from comfyui_agent.lab.profiling.capacity import fits_at_once
from comfyui_agent.lab.profiling.profile import LOOK_EVERY, Profiling
from comfyui_agent.lab.profiling.runs import Kind, Run, Split, measured_runs, split, typical_steps
from comfyui_agent.lab.profiling.timeline import NodeTime
from comfyui_agent.lab.reports.environment import Environment, ReportKind, ServerFacts
from comfyui_agent.lab.reports.profile import NodeCost, NodeSeconds, ProfileReport, RunFigures


def report_of(profile: Profiling, environment: Environment) -> ProfileReport:
    """The report of what was measured, all or a part. Medians leave out runs that the cache answered."""
    graph = profile.payload.graph
    typical = typical_steps(profile.runs)
    splits = {run.prompt_id: split(run, graph, typical) for run in profile.runs}
    cold, warm = measured_runs(profile.runs, Kind.COLD), measured_runs(profile.runs, Kind.WARM)
    peak = max((run.peak_vram_mb for run in profile.runs if run.peak_vram_mb is not None), default=None)
    return ProfileReport(
        workflow=profile.payload.facts,
        server=str(profile.client.address),
        duration_sec=_median(warm, lambda run: run.duration_sec),
        cold_duration_sec=_median(cold, lambda run: run.duration_sec),
        model_load_sec=_median(cold, lambda run: splits[run.prompt_id].model_load_sec),
        sampling_sec=_median(warm, lambda run: splits[run.prompt_id].sampling_sec),
        transfer_sec=_median(warm or cold, lambda run: run.transfer_sec),
        peak_vram_mb=peak,
        idle_vram_mb=profile.idle_vram_mb,
        vram_total_mb=profile.vram_total_mb,
        avg_gpu_util=_busy(profile),
        fits_at_once=fits_at_once(peak, profile.vram_total_mb),
        nodes=_nodes(graph, cold, warm),
        runs=[_run(run, splits[run.prompt_id]) for run in profile.runs],
        gpu_source=profile.trace.source,
        gpu_trace=profile.samples,
        warnings=profile.warnings,
        partial=profile.is_partial,
        environment=environment,
    )


def environment_of(profile: Profiling, machine: dict[str, Any], server: ServerFacts) -> Environment:
    return Environment(
        kind=ReportKind.PROFILE,
        e3=__version__,
        started_at=profile.started_at,
        ended_at=utc_text(),
        machine=machine,
        servers=[server],
        parameters={
            "server": str(profile.client.address),
            "runs": profile.wanted,
            "timeout": profile.timeout,
            "gpu_every_sec": LOOK_EVERY,
        },
    )


def raw_lines(profile: Profiling) -> Iterator[dict[str, Any]]:
    """Everything that was heard and seen, one document a line: the samples, then the moments of each run."""
    for sample in profile.samples:
        yield {"kind": "gpu", **sample.as_json()}
    for number, run in enumerate(profile.runs):
        for moment in run.moments:
            yield {
                "kind": "moment",
                "run": number,
                "run_kind": str(run.kind),
                "prompt_id": run.prompt_id,
                "seconds": round(profile.trace.at(moment.at), 4),
                "moment": moment.kind,
                "node_id": moment.node_id or None,
                "step": moment.step or None,
                "steps": moment.steps or None,
            }


def _nodes(graph: Graph, cold: Sequence[Run], warm: Sequence[Run]) -> list[NodeCost]:
    """All nodes that ran, the costliest of warm runs first. One that warm runs take from the cache costs them 0 s."""
    both = (*cold, *warm)
    steps: dict[str, int] = {}
    for node in (node for run in both for node in run.nodes):
        steps[node.node_id] = max(node.steps, steps.get(node.node_id, 0))
    cold_times = {node_id: _node_median(cold, node_id) for node_id in steps}
    warm_times = {node_id: _node_median(warm, node_id) for node_id in steps}
    total = sum(seconds or 0.0 for seconds in warm_times.values())
    order = sorted(steps, key=lambda node_id: (-(warm_times[node_id] or 0.0), -(cold_times[node_id] or 0.0)))
    return [
        NodeCost(
            node_id=node_id,
            class_type=class_of(graph, node_id),
            title=_title(graph, node_id),
            cold_sec=_rounded(cold_times[node_id]),
            warm_sec=_rounded(warm_times[node_id]),
            share=round((warm_times[node_id] or 0.0) / total, 4) if total else None,
            steps=steps[node_id],
        )
        for node_id in order
    ]


def _node_median(runs: Sequence[Run], node_id: str) -> float | None:
    heard = [run for run in runs if run.nodes]
    return median([sum(node.seconds for node in run.nodes if node.node_id == node_id) for run in heard])


def _run(run: Run, parts: Split) -> RunFigures:
    return RunFigures(
        kind=str(run.kind),
        prompt_id=run.prompt_id,
        started_at=run.started_at,
        seconds=round(run.seconds, 3),
        duration_sec=_rounded(run.duration_sec),
        queue_sec=_rounded(run.queue_sec),
        exec_sec=_rounded(run.exec_sec),
        transfer_sec=_rounded(run.transfer_sec),
        model_load_sec=_rounded(parts.model_load_sec),
        sampling_sec=_rounded(parts.sampling_sec),
        other_sec=_rounded(parts.other_sec),
        peak_vram_mb=run.peak_vram_mb,
        cached=run.cached,
        nodes=[_node(node) for node in run.nodes],
    )


def _node(node: NodeTime) -> NodeSeconds:
    return NodeSeconds(
        node_id=node.node_id,
        class_type=node.class_type,
        seconds=round(node.seconds, 3),
        first_step_sec=_rounded(node.first_step_sec),
        steps=node.steps,
    )


def _busy(profile: Profiling) -> float | None:
    """How busy the card was during runs, in percent; None if that is not known."""
    times = [(run.seconds, run.seconds + run.duration_sec) for run in profile.runs]
    known = [
        sample.gpu_util
        for sample in profile.samples
        if sample.gpu_util is not None and any(began <= (sample.seconds or 0.0) <= ended for began, ended in times)
    ]
    return round(fmean(known), 1) if known else None


def _median(runs: Sequence[Run], value: Callable[[Run], float | None]) -> float | None:
    return _rounded(median([each for each in map(value, runs) if each is not None]))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _title(graph: Graph, node_id: str) -> str:
    node = graph.get(node_id)
    meta = node.get("_meta") if isinstance(node, Mapping) else None
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""
