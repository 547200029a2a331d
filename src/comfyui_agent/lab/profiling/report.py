"""A profile as one document: the numbers, what they were made of, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.domain.prompts import Graph, class_of
from comfyui_agent.lab.measurement.moments import utc_text
from comfyui_agent.lab.measurement.statistics import median
from comfyui_agent.lab.profiling.capacity import fits_at_once
from comfyui_agent.lab.profiling.profile import LOOK_EVERY, Profiling
from comfyui_agent.lab.profiling.runs import Kind, Run, Split, counted, split, typical_steps

Json = dict[str, Any]


def report_of(profile: Profiling, environment: Mapping[str, Any]) -> Json:
    """The report of what was measured, be it all or a part. Medians leave out runs that the cache answered."""
    graph = profile.payload.graph
    typical = typical_steps(profile.runs)
    splits = {run.prompt_id: split(run, graph, typical) for run in profile.runs}
    cold, warm = counted(profile.runs, Kind.COLD), counted(profile.runs, Kind.WARM)
    samples = profile.samples
    peaks = [run.peak_vram_mb for run in profile.runs if run.peak_vram_mb is not None]
    peak = max(peaks, default=None)
    return {
        "workflow": profile.payload.as_json(),
        "server": str(profile.client.address),
        "duration_sec": _median(warm, lambda run: run.duration_sec),
        "cold_duration_sec": _median(cold, lambda run: run.duration_sec),
        "model_load_sec": _median(cold, lambda run: splits[run.prompt_id].model_load_sec),
        "sampling_sec": _median(warm, lambda run: splits[run.prompt_id].sampling_sec),
        "transfer_sec": _median(warm or cold, lambda run: run.transfer_sec),
        "peak_vram_mb": peak,
        "idle_vram_mb": profile.idle_vram_mb,
        "vram_total_mb": profile.vram_total_mb,
        "avg_gpu_util": _busy(profile),
        "fits_at_once": fits_at_once(peak, profile.vram_total_mb).as_json(),
        "nodes": _nodes(graph, cold, warm),
        "runs": [_run(run, splits[run.prompt_id]) for run in profile.runs],
        "gpu_source": profile.trace.source,
        "gpu_trace": [sample.as_json() for sample in samples],
        "warnings": profile.warnings,
        "partial": profile.is_partial,
        "environment": dict(environment),
    }


def environment_of(profile: Profiling, facts: Mapping[str, Any]) -> Json:
    """On what it was measured, and how."""
    return {
        "kind": "profile",
        "e3": __version__,
        "started_at": profile.started_at,
        "ended_at": utc_text(),
        **facts,
        "parameters": {
            "server": str(profile.client.address),
            "runs": profile.wanted,
            "timeout": profile.timeout,
            "gpu_every_sec": LOOK_EVERY,
        },
    }


def raw_lines(profile: Profiling) -> Iterator[Json]:
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


def _nodes(graph: Graph, cold: list[Run], warm: list[Run]) -> list[Json]:
    """All nodes that ran, the costliest of warm runs first. One that warm runs take from the cache costs them 0 s."""
    seen = {node.node_id: node for run in (*cold, *warm) for node in run.nodes}
    cold_times = {node_id: _node_median(cold, node_id) for node_id in seen}
    warm_times = {node_id: _node_median(warm, node_id) for node_id in seen}
    whole = sum(seconds or 0.0 for seconds in warm_times.values())
    order = sorted(seen, key=lambda node_id: (-(warm_times[node_id] or 0.0), -(cold_times[node_id] or 0.0)))
    return [
        {
            "node_id": node_id,
            "class_type": class_of(graph, node_id),
            "title": _title(graph, node_id),
            "cold_sec": _rounded(cold_times[node_id]),
            "warm_sec": _rounded(warm_times[node_id]),
            "share": round((warm_times[node_id] or 0.0) / whole, 4) if whole else None,
            "steps": max(node.steps for run in (*cold, *warm) for node in run.nodes if node.node_id == node_id),
        }
        for node_id in order
    ]


def _node_median(runs: list[Run], node_id: str) -> float | None:
    heard = [run for run in runs if run.nodes]
    return median([sum(node.seconds for node in run.nodes if node.node_id == node_id) for run in heard])


def _run(run: Run, parts: Split) -> Json:
    return {
        "kind": str(run.kind),
        "prompt_id": run.prompt_id,
        "started_at": run.started_at,
        "seconds": round(run.seconds, 3),
        "duration_sec": _rounded(run.duration_sec),
        "queue_sec": _rounded(run.queue_sec),
        "exec_sec": _rounded(run.exec_sec),
        "transfer_sec": _rounded(run.transfer_sec),
        "model_load_sec": _rounded(parts.model_load_sec),
        "sampling_sec": _rounded(parts.sampling_sec),
        "other_sec": _rounded(parts.other_sec),
        "peak_vram_mb": run.peak_vram_mb,
        "cached": run.cached,
        "nodes": [node.as_json() for node in run.nodes],
    }


def _busy(profile: Profiling) -> float | None:
    """How busy the card was while something ran, in percent; None if that is not known."""
    known = [
        sample.gpu_util
        for sample in profile.samples
        if sample.gpu_util is not None
        and any(run.seconds <= sample.seconds <= run.seconds + run.duration_sec for run in profile.runs)
    ]
    return round(fmean(known), 1) if known else None


def _median(runs: list[Run], value: Callable[[Run], float | None]) -> float | None:
    return _rounded(median([each for each in map(value, runs) if each is not None]))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _title(graph: Graph, node_id: str) -> str:
    node = graph.get(node_id)
    meta = node.get("_meta") if isinstance(node, Mapping) else None
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""
