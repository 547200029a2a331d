"""The page of two reports compared: what changed, and what is only noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from comfyui_agent.lab.load.comparison import Comparison, Judgement, Metric
from comfyui_agent.lab.pages.figures import Interval, Lane, Lanes, Target
from comfyui_agent.lab.pages.rendering import Mark, flattened, render
from comfyui_agent.lab.quantities import DASH, change, points

TONES = {Judgement.BETTER: "good", Judgement.WORSE: "bad"}
DRAWN = {
    Judgement.WORSE: ("worse", "triangles"),
    Judgement.BETTER: ("better", "dots"),
    Judgement.NOISE: ("within noise", "squares"),
    Judgement.TOO_FEW: ("too few to say", "crosses"),
}
"""How verdicts are counted in the title, and their marks."""
FARTHEST = 100.0
"""A change by more than a hundred times is shown as `any`: nobody knows how much."""
FARTHEST_DRAWN = 3.0
"""Whatever lies beyond is drawn at the edge, with its number."""


def compare_page(comparison: Comparison) -> str:
    verdicts = {metric.verdict for metric in comparison.metrics}
    tone = "bad" if Judgement.WORSE in verdicts else "good" if Judgement.BETTER in verdicts else "dim"
    return render(
        "compare.html",
        stands=Mark(tone, comparison.verdict),
        comparison=comparison,
        changes=_changes(comparison.metrics),
        rows=[
            (metric, _name(metric), Mark(TONES.get(metric.verdict, "dim"), str(metric.verdict)), _interval(metric))
            for metric in comparison.metrics
        ],
        sides=_sides(comparison),
        environment=None,
        json_name="",
    )


def _name(metric: Metric) -> str:
    return metric.metric.removesuffix("_sec").replace("_", " ")


def _changes(metrics: Sequence[Metric]) -> Lanes | None:
    shown = [metric for metric in metrics if metric.change is not None and metric.verdict in DRAWN]
    if not shown:
        return None
    counts = Counter(metric.verdict for metric in shown)
    return Lanes(
        f"Of {len(shown)} figures: "
        + ", ".join(f"{counts[verdict]} {text}" for verdict, (text, _) in DRAWN.items() if counts[verdict]),
        "Change from A to B (%)",
        [Lane(_name(metric), [_change(metric, metric.change)], interval=_drawn(metric)) for metric in shown],
        {str(verdict): look for verdict, (_, look) in DRAWN.items() if counts[verdict]},
        Target(0, "no change"),
    )


def _drawn(metric: Metric) -> Interval:
    ends = (metric.change if end is None else end for end in (metric.change, metric.low, metric.high))
    value, low, high = (100 * max(-FARTHEST_DRAWN, min(FARTHEST_DRAWN, end or 0.0)) for end in ends)
    return Interval(value, low, high, DRAWN[metric.verdict][1], metric.verdict in TONES)


def _change(metric: Metric, value: float | None) -> str:
    """Shares differ by points; everything else changes by a part of itself."""
    return points(value) if metric.unit == "share" else change(value)


def _interval(metric: Metric) -> str:
    if metric.low is None or metric.high is None:
        return DASH
    if metric.high >= FARTHEST:
        return f"{change(metric.low)} to any"
    return f"{change(metric.low).removesuffix(' %')} to {_change(metric, metric.high)}"


def _sides(comparison: Comparison) -> list[tuple[str, str, str]]:
    """All that is known of both runs: the name of a fact, and its text in A and in B."""
    a, b = dict(flattened(comparison.a.as_json())), dict(flattened(comparison.b.as_json()))
    return [(name, a.get(name, DASH), b.get(name, DASH)) for name in dict.fromkeys([*a, *b])]
