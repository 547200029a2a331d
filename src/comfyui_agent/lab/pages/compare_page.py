"""The page of two reports compared: what changed, and what is only noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from comfyui_agent.lab.pages.changes import Change, Changes
from comfyui_agent.lab.pages.rendering import Mark, flattened, render
from comfyui_agent.lab.quantities import DASH, change, date, points
from comfyui_agent.lab.reports.comparison import Comparison, Judgement, Metric

TONES = {Judgement.BETTER: "good", Judgement.WORSE: "bad"}
SUMMARY = {
    Judgement.WORSE: "worse",
    Judgement.BETTER: "better",
    Judgement.NOISE: "within noise",
    Judgement.TOO_FEW: "too few to say",
}
FARTHEST = 100.0
"""A change by more than a hundred times is shown as `any`: nobody knows how much."""


def compare_page(comparison: Comparison) -> str:
    """A comparison as a page that needs nothing else."""
    a, b = comparison.a, comparison.b
    return render(
        "compare.html",
        kind="Comparison of two load tests",
        title=f"{a.name} and {b.name}",
        stands=_stands(comparison),
        subtitle=f"A is {a.name}, started {date(a.started_at)}. B is {b.name}, started {date(b.started_at)}.",
        comparison=comparison,
        changes=_changes(comparison.metrics),
        rows=[
            (metric, name_of(metric), Mark(TONES.get(metric.verdict, "dim"), str(metric.verdict)), _interval(metric))
            for metric in comparison.metrics
        ],
        sides=_sides(comparison),
        environment=None,
        json_name="",
    )


def name_of(metric: Metric) -> str:
    return metric.metric.removesuffix("_sec").replace("_", " ")


def _stands(comparison: Comparison) -> Mark:
    verdicts = {metric.verdict for metric in comparison.metrics}
    tone = "bad" if Judgement.WORSE in verdicts else "good" if Judgement.BETTER in verdicts else "dim"
    return Mark(tone, comparison.verdict)


def _changes(metrics: Sequence[Metric]) -> Changes | None:
    shown = [metric for metric in metrics if metric.verdict is not Judgement.NOT_MEASURED]
    found = [
        Change(name_of(metric), metric.change, metric.low, _bound(metric), str(metric.verdict), _change(metric))
        for metric in shown
        if metric.change is not None
    ]
    if not found:
        return None
    counts = Counter(each.verdict for each in found)
    parts = [f"{counts[verdict.value]} {text}" for verdict, text in SUMMARY.items() if counts[verdict.value]]
    return Changes(
        f"Of {len(found)} figures: {', '.join(parts)}",
        "Each mark is the change from A to B; the line through it is where the true change may lie. A line that "
        "crosses “no change” may be chance. Shares are compared in points of a hundred.",
        found,
    )


def _change(metric: Metric) -> str:
    """Shares differ by points; everything else changes by a part of itself."""
    return points(metric.change) if metric.unit == "share" else change(metric.change)


def _bound(metric: Metric) -> float | None:
    return None if metric.high is None else min(metric.high, FARTHEST)


def _interval(metric: Metric) -> str:
    if metric.low is None or metric.high is None:
        return DASH
    if metric.high >= FARTHEST:
        return f"{change(metric.low)} to any"
    end = points(metric.high) if metric.unit == "share" else change(metric.high)
    return f"{change(metric.low).removesuffix(' %')} to {end}"


def _sides(comparison: Comparison) -> list[tuple[str, str, str]]:
    """All that is known of both runs: the name of a fact, and its text in A and in B."""
    a, b = dict(flattened(comparison.a.as_json())), dict(flattened(comparison.b.as_json()))
    return [(name, a.get(name, DASH), b.get(name, DASH)) for name in dict.fromkeys([*a, *b])]
