"""From the runs of a profile to its report, and to the files of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from comfyui_agent.domain.prompts import Graph, class_of
from comfyui_agent.lab.files import file_stem, unused, write_json, write_text
from comfyui_agent.lab.measurement.machine import environment_of
from comfyui_agent.lab.profiling.profile import LOOK_EVERY, Profiling
from comfyui_agent.lab.profiling.runs import Kind, split, typical_steps
from comfyui_agent.lab.reports.environment import ReportKind, ServerFacts
from comfyui_agent.lab.reports.profile import FitsAtOnce, NodeCost, ProfileReport, RunFigures

UNKNOWN = "How many such servers fit on one card is not known: the memory of a graphics card was not seen."


def report_of(profile: Profiling, server: ServerFacts) -> ProfileReport:
    """The report of what was measured, all or a part. Medians leave out runs that the cache answered."""
    graph, runs, address = profile.payload.graph, profile.runs, str(profile.client.address)
    typical = typical_steps(runs)
    for run in runs:
        split(run, graph, typical)
    cold, warm = ([run for run in runs if run.kind == kind and not run.cached] for kind in Kind)
    parameters = {
        "server": address,
        "runs": profile.wanted,
        "timeout": profile.timeout,
        "gpu_every_sec": LOOK_EVERY,
    }
    peak = max((run.peak_vram_mb for run in runs if run.peak_vram_mb is not None), default=None)
    return ProfileReport(
        workflow=profile.payload.facts,
        server=address,
        duration_sec=_median(run.duration_sec for run in warm),
        cold_duration_sec=_median(run.duration_sec for run in cold),
        model_load_sec=_median(run.model_load_sec for run in cold),
        sampling_sec=_median(run.sampling_sec for run in warm),
        transfer_sec=_median(run.transfer_sec for run in warm or cold),
        peak_vram_mb=peak,
        idle_vram_mb=profile.idle_vram_mb,
        vram_total_mb=profile.vram_total_mb,
        avg_gpu_util=_busy(profile),
        fits_at_once=fits_at_once(peak, profile.vram_total_mb),
        nodes=_nodes(graph, cold, warm),
        runs=runs,
        gpu_source=profile.trace.source,
        gpu_trace=profile.trace.samples,
        warnings=profile.warnings,
        partial=profile.is_partial,
        environment=environment_of(ReportKind.PROFILE, profile.trace.clock, servers=[server], parameters=parameters),
    )


def fits_at_once(peak_mb: float | None, total_mb: float | None) -> FitsAtOnce:
    """How many servers fit on one card. ComfyUI renders one prompt at a time, so more at once means more servers."""
    if not peak_mb or not total_mb:
        return FitsAtOnce(count=None, sentence=UNKNOWN)
    count = max(1, int(total_mb // peak_mb))
    room = f"up to {peak_mb:,} MB of {total_mb:,} MB, and renders one at a time."
    if count == 1:
        sentence = f"One such server fits on this card: it holds {room}"
    else:
        sentence = f"{count} such servers fit on this card side by side: each holds {room}"
    return FitsAtOnce(count=count, sentence=sentence)


def _nodes(graph: Graph, cold: Sequence[RunFigures], warm: Sequence[RunFigures]) -> list[NodeCost]:
    """All nodes that ran, the costliest of warm runs first. One that warm runs take from the cache costs them 0 s."""
    steps: dict[str, int] = {}
    for node in (node for run in (*cold, *warm) for node in run.nodes):
        steps[node.node_id] = max(node.steps, steps.get(node.node_id, 0))
    times = {node_id: (_node_median(cold, node_id), _node_median(warm, node_id)) for node_id in steps}
    total = sum(warm_sec or 0.0 for _, warm_sec in times.values())
    order = sorted(times.items(), key=lambda item: (-(item[1][1] or 0.0), -(item[1][0] or 0.0)))
    return [
        NodeCost(
            node_id=node_id,
            class_type=class_of(graph, node_id),
            title=_title(graph, node_id),
            cold_sec=cold_sec,
            warm_sec=warm_sec,
            share=round((warm_sec or 0.0) / total, 4) if total else None,
            steps=steps[node_id],
        )
        for node_id, (cold_sec, warm_sec) in order
    ]


def _node_median(runs: Sequence[RunFigures], node_id: str) -> float | None:
    heard = [run.nodes for run in runs if run.nodes]
    return _median(sum(node.seconds or 0.0 for node in nodes if node.node_id == node_id) for nodes in heard)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _busy(profile: Profiling) -> float | None:
    """How busy the card was during runs, in percent; None if that is not known."""
    times = [(run.seconds or 0.0, (run.seconds or 0.0) + (run.duration_sec or 0.0)) for run in profile.runs]
    known = [
        sample.gpu_util
        for sample in profile.trace.samples
        if sample.gpu_util is not None and any(began <= (sample.seconds or 0.0) <= ended for began, ended in times)
    ]
    return round(fmean(known), 1) if known else None


def _title(graph: Graph, node_id: str) -> str:
    node = graph.get(node_id)
    meta = node.get("_meta") if isinstance(node, Mapping) else None
    title = meta.get("title") if isinstance(meta, Mapping) else None
    return title if isinstance(title, str) else ""


def raw_lines(profile: Profiling) -> Iterator[dict[str, Any]]:
    """Everything that was heard and seen, one document a line: the samples, then the moments of each run."""
    for sample in profile.trace.samples:
        yield {"kind": "gpu", **sample.as_json()}
    for number, (run, moments) in enumerate(zip(profile.runs, profile.moments, strict=True)):
        for moment in moments:
            yield {
                "kind": "moment",
                "run": number,
                "run_kind": run.kind,
                "prompt_id": run.prompt_id,
                "seconds": round(profile.trace.clock.seconds_of(moment.at), 4),
                "moment": moment.kind,
                "node_id": moment.node_id or None,
                "step": moment.step or None,
                "steps": moment.steps or None,
            }


def write_profile(folder: Path, profile: Profiling, report: ProfileReport) -> Path:
    """Write the report as `NAME.json`, and what it was made of as `NAME.samples.ndjson`. Unwritable if that fails."""
    stem = unused(folder, file_stem(profile.payload.name), (".json", ".samples.ndjson"))
    lines = (json.dumps(line, ensure_ascii=False) for line in raw_lines(profile))
    write_text(folder / f"{stem}.samples.ndjson", "".join(f"{line}\n" for line in lines))
    write_json(folder / f"{stem}.json", report.as_json())
    return folder / f"{stem}.json"
