"""Two load tests compared: what became better or worse, and what is noise.

Only the scatter within the two runs is known: what differs from run to run, such as a card that was warm already,
shows when a run is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.lab.load.comparability import grave_differences, other_differences, weaknesses
from comfyui_agent.lab.load.comparison_side import Side
from comfyui_agent.lab.load.differences import Judgement, Metric, proportion, throughput, timed
from comfyui_agent.lab.load.reports import BadReport, Report, ReportKind


@dataclass(frozen=True)
class Comparison:
    """What two runs differ in. `cautions` say why they may not be comparable."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    cautions: tuple[str, ...]
    metrics: tuple[Metric, ...]
    verdict: str

    def as_json(self) -> dict[str, Any]:
        return {
            "a": dict(self.a),
            "b": dict(self.b),
            "cautions": list(self.cautions),
            "metrics": [metric.as_json() for metric in self.metrics],
            "verdict": self.verdict,
        }


def compare(a: Report, b: Report) -> Comparison:
    """Judge B by A. The same two reports always give the same answer. BadReport if one is no load test."""
    for report in (a, b):
        if report.kind is not ReportKind.LOADTEST:
            raise BadReport(f"{report.path} is a {report.kind} report: two load tests can be compared")
    first, second = Side(a), Side(b)
    metrics = _metrics(first, second)
    grave = grave_differences(first, second)
    cautions = (*grave, *other_differences(first, second), *weaknesses(first, second))
    verdict = _conclusion(metrics, is_fair=not grave)
    return Comparison(first.as_json(), second.as_json(), cautions, metrics, verdict)


def _metrics(a: Side, b: Side) -> tuple[Metric, ...]:
    return (
        timed("p50_duration_sec", "latency p50", a.durations, b.durations, 0.5),
        timed("p95_duration_sec", "latency p95", a.durations, b.durations, 0.95),
        timed("avg_duration_sec", "mean latency", a.durations, b.durations, None),
        timed("p50_exec_sec", "median execution", a.executions, b.executions, 0.5),
        timed("p50_queue_sec", "median wait", a.waits, b.waits, 0.5),
        throughput(a, b),
        proportion("success_rate", "success rate", a.completed, b.completed, 1),
        proportion("cached_share", "cached answers", a.cached, b.cached, -1),
    )


def _conclusion(metrics: Sequence[Metric], *, is_fair: bool) -> str:
    """One sentence. With this many figures one of them leaves its 95 % by chance now and then, so 99 % decide."""
    told = [metric for metric in metrics if metric.metric != "cached_share"]
    differing = [metric for metric in told if metric.verdict in (Judgement.BETTER, Judgement.WORSE)]
    sure = [metric for metric in differing if metric.is_sure]
    if sure:
        parts = [
            f"{word} in {', '.join(metric.short for metric in sure if metric.verdict is word)}"
            for word in (Judgement.WORSE, Judgement.BETTER)
            if any(metric.verdict is word for metric in sure)
        ]
        words = f"B is {' and '.join(parts)}"
    elif differing:
        names = ", ".join(metric.short for metric in differing)
        words = f"No difference is certain; {names} may be one, or chance: repeat the run"
    elif all(metric.verdict in (Judgement.TOO_FEW, Judgement.NOT_MEASURED) for metric in told):
        words = "Too little was measured to tell A and B apart"
    else:
        words = "Nothing but noise: A and B differ in nothing that was measured well enough"
    return words + ("." if is_fair else "; but the runs were not alike, see the cautions.")
