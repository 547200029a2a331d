"""Two load tests compared: what became better or worse, and what is noise.

Only the scatter within the two runs is known. What differs from run to run, such as a card that was warm already,
shows when a run is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.lab.load.comparability import grave_differences, other_differences, weaknesses
from comfyui_agent.lab.load.differences import compare_shares, compare_throughput, compare_times, short
from comfyui_agent.lab.load.side import Side
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.comparison import Comparison, Judgement, Metric
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport


def compare(a: LoadReport | ChaosReport, b: LoadReport | ChaosReport) -> Comparison:
    """Judge B by A. The same two reports always give the same answer. BadReport if one is no load test."""
    for report in (a, b):
        if isinstance(report, ChaosReport):
            raise BadReport(f"{report.path} is a {report.kind} report: two load tests can be compared")
    assert isinstance(a, LoadReport)
    assert isinstance(b, LoadReport)
    first, second = Side(a), Side(b)
    metrics = _metrics(first, second)
    grave = grave_differences(first, second)
    return Comparison(
        a=first.as_run(),
        b=second.as_run(),
        cautions=[*grave, *other_differences(first, second), *weaknesses(first, second)],
        metrics=metrics,
        verdict=_conclusion(metrics, is_fair=not grave),
    )


def _metrics(a: Side, b: Side) -> list[Metric]:
    return [
        compare_times("p50_duration_sec", "latency p50", a.durations, b.durations, 0.5),
        compare_times("p95_duration_sec", "latency p95", a.durations, b.durations, 0.95),
        compare_times("avg_duration_sec", "mean latency", a.durations, b.durations, None),
        compare_times("p50_exec_sec", "median execution", a.executions, b.executions, 0.5),
        compare_times("p50_queue_sec", "median wait", a.waits, b.waits, 0.5),
        compare_throughput(a, b),
        compare_shares("success_rate", "success rate", a.completed, b.completed, 1),
        compare_shares("cached_share", "cached answers", a.cached, b.cached, -1),
    ]


def _conclusion(metrics: Sequence[Metric], *, is_fair: bool) -> str:
    """One sentence. Of this many figures one leaves its 95 % by chance now and then, so 99 % decide."""
    counting = [metric for metric in metrics if metric.metric != "cached_share"]
    differing = [metric for metric in counting if metric.verdict in (Judgement.BETTER, Judgement.WORSE)]
    sure = [metric for metric in differing if metric.is_sure]
    if sure:
        parts = [
            f"{verdict} in {', '.join(short(metric) for metric in sure if metric.verdict is verdict)}"
            for verdict in (Judgement.WORSE, Judgement.BETTER)
            if any(metric.verdict is verdict for metric in sure)
        ]
        sentence = f"B is {' and '.join(parts)}"
    elif differing:
        names = ", ".join(map(short, differing))
        sentence = f"No difference is certain; {names} may be one, or chance: repeat the run"
    elif all(metric.verdict in (Judgement.TOO_FEW, Judgement.NOT_MEASURED) for metric in counting):
        sentence = "Too little was measured to tell A and B apart"
    else:
        sentence = "Nothing but noise: A and B differ in nothing that was measured well enough"
    return sentence + ("." if is_fair else "; but the runs were not alike, see the cautions.")
