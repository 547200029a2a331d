"""Two load tests compared: what became better or worse, and what is noise.

Only the scatter within the two runs is known. What differs from run to run, such as a card that was warm already,
shows when a run is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from pydantic import Field

from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.load.batch_means import FEWEST_VALUES, Series, Share, difference_of, interval_reach
from comfyui_agent.lab.load.measurement import percentile
from comfyui_agent.lab.load.side import ComparedRun, Completion, Side, grave_differences, other_differences, weaknesses
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.fields import Number, Part
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.reading import BadReport
from comfyui_agent.lab.sla.load_targets import MOST_CACHED

CONFIDENT, SURE = 0.95, 0.99
RESOLUTION_SEC = 0.001


class Judgement(TextEnum):
    BETTER = "better"
    WORSE = "worse"
    NOISE = "noise"
    TOO_FEW = "too few"
    NOT_MEASURED = "not measured"


class Metric(Part):
    """One figure of both runs. Changes are relative; those of shares are differences of the shares."""

    metric: str
    unit: str
    a: Number = None
    b: Number = None
    change: Number = None
    low: Number = None
    high: Number = None
    verdict: Judgement
    sentence: str
    is_sure: bool = Field(default=False, exclude=True)
    """Whether it would still stand if one asked for 99 % instead of 95 %."""


class Comparison(Part):
    """What two runs differ in. `cautions` say why they may not be comparable."""

    a: ComparedRun
    b: ComparedRun
    cautions: list[str]
    metrics: list[Metric]
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """Every key, also of figures that are not known."""
        return self.model_dump(mode="json")


def compare(a: LoadReport | ChaosReport, b: LoadReport | ChaosReport) -> Comparison:
    """Judge B by A. The same two reports always give the same answer. BadReport if one is no load test."""
    sides = []
    for report in (a, b):
        if isinstance(report, ChaosReport):
            raise BadReport(f"{report.path} is a {report.kind} report: two load tests can be compared")
        sides.append(Side(report))
    first, second = sides
    metrics = [
        _compare_times("p50_duration_sec", "latency p50", first.durations, second.durations, 0.5),
        _compare_times("p95_duration_sec", "latency p95", first.durations, second.durations, 0.95),
        _compare_times("avg_duration_sec", "mean latency", first.durations, second.durations, None),
        _compare_times("p50_exec_sec", "median execution", first.executions, second.executions, 0.5),
        _compare_times("p50_queue_sec", "median wait", first.waits, second.waits, 0.5),
        _compare_throughput(first, second),
        _compare_shares("success_rate", "success rate", first.completed, second.completed, 1),
        _compare_shares("cached_share", "cached answers", first.cached, second.cached, -1),
    ]
    grave = grave_differences(first, second)
    return Comparison(
        a=first.as_run(),
        b=second.as_run(),
        cautions=[*grave, *other_differences(first, second), *weaknesses(first, second)],
        metrics=metrics,
        verdict=_conclusion(metrics, is_fair=not grave),
    )


def _conclusion(metrics: Sequence[Metric], *, is_fair: bool) -> str:
    """One sentence. Of this many figures one leaves its 95 % by chance now and then, so 99 % decide."""
    counting = [metric for metric in metrics if metric.metric != "cached_share"]
    differing = [metric for metric in counting if metric.verdict in (Judgement.BETTER, Judgement.WORSE)]
    sure = [metric for metric in differing if metric.is_sure]
    if sure:
        parts = [
            f"{verdict} in {', '.join(_short(metric) for metric in sure if metric.verdict is verdict)}"
            for verdict in (Judgement.WORSE, Judgement.BETTER)
            if any(metric.verdict is verdict for metric in sure)
        ]
        sentence = f"B is {' and '.join(parts)}"
    elif differing:
        names = ", ".join(map(_short, differing))
        sentence = f"No difference is certain; {names} may be one, or chance: repeat the run"
    elif all(metric.verdict in (Judgement.TOO_FEW, Judgement.NOT_MEASURED) for metric in counting):
        sentence = "Too little was measured to tell A and B apart"
    else:
        sentence = "Nothing but noise: A and B differ in nothing that was measured well enough"
    return sentence + ("." if is_fair else "; but the runs were not alike, see the cautions.")


def _compare_times(metric: str, label: str, a: Series[float], b: Series[float], share: float | None) -> Metric:
    """A percentile of seconds, or their mean if `share` is None."""
    figure = fmean if share is None else partial(percentile, share=share)
    first, second = (figure(each.values) if each.values else None for each in (a, b))
    undecided = partial(Metric, metric=metric, unit="s", a=first, b=second, change=_relative(first, second))
    if first is None or second is None:
        lacking = " and ".join(side for side, value in (("A", first), ("B", second)) if value is None)
        return undecided(verdict=Judgement.NOT_MEASURED, sentence=f"{label} was not measured in {lacking}.")
    both = f"{_quantity(first, 's')} and {_quantity(second, 's')}"
    is_enough = min(len(a.values), len(b.values)) >= FEWEST_VALUES
    if is_enough and abs(first - second) < RESOLUTION_SEC:
        return undecided(verdict=Judgement.NOISE, sentence=f"{label} {both}: less than a millisecond apart.")
    for side, series in (("A", a), ("B", b)):
        reason = series.lack(share)
        if reason:
            return undecided(verdict=Judgement.TOO_FEW, sentence=f"{label} {both}: {reason} in {side}.")
    return _judged(metric, label, "s", (first, second), partial(interval_reach, a, b, figure), -1)


def _compare_throughput(a: Side, b: Side) -> Metric:
    """Images a minute; the scatter is that of the times between completions."""
    metric, unit, label = "images_per_minute", "images/min", "throughput"
    undecided = partial(Metric, metric=metric, unit=unit, a=a.rate, b=b.rate, change=_relative(a.rate, b.rate))
    for name, side in (("A", a), ("B", b)):
        lacking = f"{label} was not measured in {name}"
        if not side.rate or not side.completions.values:
            return undecided(verdict=Judgement.NOT_MEASURED, sentence=f"{lacking}.")
        if side.cached.hits and side.cached.value > MOST_CACHED:
            return undecided(verdict=Judgement.NOT_MEASURED, sentence=f"{lacking}: the cache answered too often.")
        reason = side.completions.lack()
        if reason:
            return undecided(verdict=Judgement.TOO_FEW, sentence=f"{label}: {reason} in {name}.")
    reach = partial(interval_reach, a.completions, b.completions, _rate)
    return _judged(metric, label, unit, (a.rate or 0.0, b.rate or 0.0), reach, 1)


def _compare_shares(metric: str, label: str, a: Share, b: Share, good: int) -> Metric:
    """A share of all. `good` is the sign of an improvement."""
    if not a.total or not b.total:
        side = " and ".join(name for name, share in (("A", a), ("B", b)) if not share.total)
        sentence = f"{label}: nothing was measured in {side}."
        return Metric(metric=metric, unit="share", verdict=Judgement.NOT_MEASURED, sentence=sentence)
    found = partial(Metric, metric=metric, unit="share", a=a.value, b=b.value, change=b.value - a.value)
    if min(a.total, b.total) < FEWEST_VALUES:
        sentence = f"{label} {a} and {b}: at least {FEWEST_VALUES} are needed."
        return found(verdict=Judgement.TOO_FEW, sentence=sentence)
    low, high = difference_of(a, b, CONFIDENT)
    surely = difference_of(a, b, SURE)
    verdict = _side_of_zero(low, high, good)
    what = "no difference beyond noise" if verdict is Judgement.NOISE else f"{verdict}"
    sentence = f"{label} {a} and {b}: {what} ({_points(low)} to {_points(high)} points, 95 %)."
    return found(low=low, high=high, verdict=verdict, sentence=sentence, is_sure=surely[0] > 0 or surely[1] < 0)


def _judged(
    metric: str, label: str, unit: str, values: tuple[float, float], reach_at: Callable[[float], float], good: int
) -> Metric:
    """Whether two figures differ by more than their scatter. `good` is the sign of an improvement."""
    a, b = values
    change = _relative(a, b)
    both = f"{_quantity(a, unit)} and {_quantity(b, unit)}"
    found = partial(Metric, metric=metric, unit=unit, a=a, b=b)
    if change is None or b <= 0:
        sentence = f"{label} {both}: no relative change can be told from nothing."
        return found(verdict=Judgement.NOISE, sentence=sentence)
    reach, centre = reach_at(CONFIDENT), math.log(b / a)
    low, high = math.expm1(centre - reach), math.expm1(min(centre + reach, 50.0))
    verdict = _side_of_zero(low, high, good)
    interval = f"95 %: {_percent(low)} to {_percent(high)}"
    if verdict is Judgement.NOISE:
        sentence = f"{label} {both}: {_percent(change)} is within noise ({interval})."
    else:
        sentence = f"{label} is {verdict}: {both}, {_percent(change)} ({interval})."
    is_sure = abs(centre) > reach_at(SURE)
    return found(change=change, low=low, high=high, verdict=verdict, sentence=sentence, is_sure=is_sure)


def _side_of_zero(low: float, high: float, good: int) -> Judgement:
    if low <= 0 <= high:
        return Judgement.NOISE
    return Judgement.BETTER if (low > 0) == (good > 0) else Judgement.WORSE


def _rate(completions: Sequence[Completion]) -> float:
    seconds = sum(each.gap for each in completions)
    return sum(each.images for each in completions) / seconds if seconds > 0 else 0.0


def _relative(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or a <= 0 else b / a - 1


def _short(metric: Metric) -> str:
    name = metric.metric.removesuffix("_sec").replace("avg_", "mean_").replace("_", " ")
    shown = _percent(metric.change) if metric.unit != "share" else f"{_points(metric.change or 0.0)} points"
    return f"{name} ({shown})"


def _quantity(value: float, unit: str) -> str:
    if unit != "s":
        return f"{value:.1f} {unit}"
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s"


def _percent(change: float | None) -> str:
    return "unknown" if change is None else f"{change * 100:+.1f} %"


def _points(change: float) -> str:
    return f"{change * 100:+.1f}"
