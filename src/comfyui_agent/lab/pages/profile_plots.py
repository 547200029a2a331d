"""The plots of a profile, each with its finding as the title."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from comfyui_agent.lab.pages import facts
from comfyui_agent.lab.pages.lanes import Bar, Bars, Fill, Part
from comfyui_agent.lab.pages.plots import Band
from comfyui_agent.lab.pages.quantities import seconds, share

Rows = Sequence[Mapping[str, Any]]
MOST_NODES = 12
PARTS = (
    ("queue_sec", Part("Queue", Fill.EMPTY)),
    ("model_load_sec", Part("Model load", Fill.STRIPED)),
    ("sampling_sec", Part("Sampling", Fill.SOLID)),
    ("other_sec", Part("Other nodes", Fill.SOFT)),
    ("transfer_sec", Part("Transfer", Fill.GREY)),
)


def node_name(node: Mapping[str, Any]) -> str:
    """A node as people know it: its title, and its class where that says more."""
    title, kind = facts.text(node.get("title")).strip(), facts.text(node.get("class_type")).strip()
    if title and kind and title.replace(" ", "") != kind:
        return f"{title} ({kind})"
    return kind or title or f"node {facts.text(node.get('node_id'))}"


def node_plot(nodes: Rows) -> Bars | None:
    """Seconds of the nodes that cost most, cold and warm."""
    timed = [(node, facts.number(node.get("cold_sec")), facts.number(node.get("warm_sec"))) for node in nodes]
    known = [each for each in timed if each[1] is not None or each[2] is not None]
    known.sort(key=lambda each: max(each[1] or 0.0, each[2] or 0.0), reverse=True)
    shown = known[:MOST_NODES]
    if not shown:
        return None
    has_warm = any(warm is not None for _, _, warm in known)
    costliest = max(known, key=lambda each: (each[2] if has_warm else each[1]) or 0.0)
    part = facts.number(costliest[0].get("share"))
    of_all = f", {share(part)} of a warm run" if part is not None else ""
    cost = f"{seconds(costliest[2])} warm{of_all}" if has_warm else f"{seconds(costliest[1])} cold"
    rest = len(known) - len(shown)
    return Bars(
        f"{node_name(costliest[0])} costs most: {cost}",
        "Median time of each node, costliest first: cold, after the server's memory was freed"
        + (", and warm." if has_warm else "; no warm run was measured.")
        + (f" {rest} that cost less are in the table below." if rest > 0 else ""),
        "Time in the node (s)",
        [Part("Warm", Fill.SOLID), Part("Cold", Fill.STRIPED)] if has_warm else [Part("Cold", Fill.STRIPED)],
        [_node_bar(node, cold, warm, has_warm) for node, cold, warm in shown],
    )


def _node_bar(node: Mapping[str, Any], cold: float | None, warm: float | None, has_warm: bool) -> Bar:
    if has_warm:
        return Bar(node_name(node), [warm, cold], f"{seconds(warm)}\n{seconds(cold)}")
    return Bar(node_name(node), [cold], seconds(cold))


def run_plot(runs: Rows) -> Bars | None:
    """What each run was made of."""
    bars, loads = [], []
    for number, run in enumerate(runs, start=1):
        values = [facts.number(run.get(key)) for key, _ in PARTS]
        total = facts.number(run.get("duration_sec"))
        if any(value is not None for value in values):
            whole = sum(value or 0.0 for value in values) if total is None else total
            bars.append(Bar(f"{number} {facts.text(run.get('kind'))}".strip(), values, seconds(whole)))
            loads += [values[1]] if run.get("kind") == "cold" and values[1] is not None else []
    if not bars:
        return None
    return Bars(
        f"Loading models adds {seconds(fmean(loads))} to a cold run" if loads else "What each run was made of",
        "Each run, from the prompt sent to the result fetched, by what it was spent on.",
        "Duration (s)",
        [part for _, part in PARTS],
        bars,
        is_stacked=True,
    )


def run_bands(runs: Rows) -> list[Band]:
    """When each run was, for plots over time."""
    found = []
    for run in runs:
        start, length = facts.number(run.get("seconds")), facts.number(run.get("duration_sec"))
        if start is not None and length is not None:
            found.append(Band(start, start + length, facts.text(run.get("kind"))))
    return found
