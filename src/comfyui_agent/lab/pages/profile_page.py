"""The page of profiles: what workflows cost, node by node, cold and warm."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from comfyui_agent.lab.pages import gpu_plots
from comfyui_agent.lab.pages.figures import Band, Bar, Lane, Lanes, Plot, stacked
from comfyui_agent.lab.pages.rendering import render
from comfyui_agent.lab.quantities import listed, seconds, share
from comfyui_agent.lab.reports.profile import NodeCost, ProfileReport, RunFigures

MOST_NODES = 12
PARTS = {
    "queue_sec": ("Queue", "empty"),
    "model_load_sec": ("Model load", "striped"),
    "sampling_sec": ("Sampling", "solid"),
    "other_sec": ("Other nodes", "soft"),
    "transfer_sec": ("Transfer", "grey"),
}


def profile_page(reports: Sequence[ProfileReport], json_names: Sequence[str] = ()) -> str:
    return render(
        "profile.html",
        reports=reports,
        profiles=[(report, _figures(report)) for report in reports],
        slowest=max(reports, key=lambda report: report.duration_sec or 0.0),
        largest=max(reports, key=lambda report: report.peak_vram_mb or 0.0),
        environment=reports[0].environment,
        json_name=listed(json_names),
    )


def _figures(report: ProfileReport) -> dict[str, Plot | Lanes | None]:
    bands = [
        Band(run.seconds, run.seconds + run.duration_sec, run.kind)
        for run in report.runs
        if run.seconds is not None and run.duration_sec is not None
    ]
    return {
        "nodes": _nodes(report.nodes),
        "runs": _runs(report.runs),
        "memory": gpu_plots.memory_plot(report.gpu_trace, report.vram_total_mb, bands),
        "utilisation": gpu_plots.utilisation_plot(report.gpu_trace, bands),
    }


def _nodes(nodes: Sequence[NodeCost]) -> Lanes | None:
    """Seconds of the nodes that cost most, cold and warm."""
    known = [node for node in nodes if node.cold_sec is not None or node.warm_sec is not None]
    if not known:
        return None
    known.sort(key=lambda node: max(node.cold_sec or 0.0, node.warm_sec or 0.0), reverse=True)
    has_warm = any(node.warm_sec is not None for node in known)
    costliest = max(known, key=lambda node: (node.warm_sec if has_warm else node.cold_sec) or 0.0)
    of_all = f", {share(costliest.share)} of a warm run" if costliest.share is not None else ""
    cost = f"{seconds(costliest.warm_sec)} warm{of_all}" if has_warm else f"{seconds(costliest.cold_sec)} cold"
    keys = {"Warm": "solid", "Cold": "striped"} if has_warm else {"Cold": "striped"}
    lanes = []
    for node in known[:MOST_NODES]:
        times = [node.warm_sec, node.cold_sec] if has_warm else [node.cold_sec]
        rows = enumerate(zip(keys.values(), times, strict=True))
        bars = [Bar(fill, 0, value, row) for row, (fill, value) in rows if value]
        lanes.append(Lane(node.name, [seconds(value) for value in times], bars))
    return Lanes(
        f"{costliest.name} costs most: {cost}",
        "Time in the node (s)",
        lanes,
        keys,
    )


def _runs(runs: Sequence[RunFigures]) -> Lanes | None:
    lanes, loads = [], []
    for number, run in enumerate(runs, start=1):
        values = [getattr(run, key) for key in PARTS]
        if any(value is not None for value in values):
            total = sum(value or 0.0 for value in values) if run.duration_sec is None else run.duration_sec
            bars = stacked((fill for _, fill in PARTS.values()), values)
            lanes.append(Lane(f"{number} {run.kind}".strip(), [seconds(total)], bars))
            loads += [run.model_load_sec] if run.kind == "cold" and run.model_load_sec is not None else []
    if not lanes:
        return None
    return Lanes(
        f"Loading models adds {seconds(fmean(loads))} to a cold run" if loads else "What each run was made of",
        "Duration (s)",
        lanes,
        dict(PARTS.values()),
    )
