"""The plots of a profile, each with its finding as the title."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from comfyui_agent.lab.pages.bars import Bar, Bars, Fill, Part
from comfyui_agent.lab.pages.plots import Band
from comfyui_agent.lab.quantities import seconds, share
from comfyui_agent.lab.reports.profile import NodeCost, RunFigures

MOST_NODES = 12
PARTS = {
    "queue_sec": Part("Queue", Fill.EMPTY),
    "model_load_sec": Part("Model load", Fill.STRIPED),
    "sampling_sec": Part("Sampling", Fill.SOLID),
    "other_sec": Part("Other nodes", Fill.SOFT),
    "transfer_sec": Part("Transfer", Fill.GREY),
}


def node_name(node: NodeCost) -> str:
    """A node as people know it: its title, and its class where that says more."""
    title, kind = node.title.strip(), node.class_type.strip()
    if title and kind and title.replace(" ", "") != kind:
        return f"{title} ({kind})"
    return kind or title or f"node {node.node_id}"


def node_plot(nodes: Sequence[NodeCost]) -> Bars | None:
    """Seconds of the nodes that cost most, cold and warm."""
    known = [node for node in nodes if node.cold_sec is not None or node.warm_sec is not None]
    if not known:
        return None
    known.sort(key=lambda node: max(node.cold_sec or 0.0, node.warm_sec or 0.0), reverse=True)
    shown, rest = known[:MOST_NODES], len(known) - MOST_NODES
    has_warm = any(node.warm_sec is not None for node in known)
    costliest = max(known, key=lambda node: (node.warm_sec if has_warm else node.cold_sec) or 0.0)
    of_all = f", {share(costliest.share)} of a warm run" if costliest.share is not None else ""
    cost = f"{seconds(costliest.warm_sec)} warm{of_all}" if has_warm else f"{seconds(costliest.cold_sec)} cold"
    return Bars(
        f"{node_name(costliest)} costs most: {cost}",
        "Median time of each node, costliest first: cold, after the server's memory was freed"
        + (", and warm." if has_warm else "; no warm run was measured.")
        + (f" {rest} that cost less are in the table below." if rest > 0 else ""),
        "Time in the node (s)",
        [Part("Warm", Fill.SOLID), Part("Cold", Fill.STRIPED)] if has_warm else [Part("Cold", Fill.STRIPED)],
        [_node_bar(node, has_warm) for node in shown],
    )


def _node_bar(node: NodeCost, has_warm: bool) -> Bar:
    times = [node.warm_sec, node.cold_sec] if has_warm else [node.cold_sec]
    return Bar(node_name(node), times, "\n".join(map(seconds, times)))


def run_plot(runs: Sequence[RunFigures]) -> Bars | None:
    """What each run was made of."""
    bars, loads = [], []
    for number, run in enumerate(runs, start=1):
        values = [getattr(run, key) for key in PARTS]
        if any(value is not None for value in values):
            total = sum(value or 0.0 for value in values) if run.duration_sec is None else run.duration_sec
            bars.append(Bar(f"{number} {run.kind}".strip(), values, seconds(total)))
            loads += [run.model_load_sec] if run.kind == "cold" and run.model_load_sec is not None else []
    if not bars:
        return None
    return Bars(
        f"Loading models adds {seconds(fmean(loads))} to a cold run" if loads else "What each run was made of",
        "Each run, from the prompt sent to the result fetched, by what it was spent on.",
        "Duration (s)",
        list(PARTS.values()),
        bars,
        is_stacked=True,
    )


def run_bands(runs: Sequence[RunFigures]) -> list[Band]:
    """When each run was, for plots over time."""
    return [
        Band(run.seconds, run.seconds + run.duration_sec, run.kind)
        for run in runs
        if run.seconds is not None and run.duration_sec is not None
    ]
