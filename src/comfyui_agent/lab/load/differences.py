"""One figure of two load tests: better, worse, or noise."""

from __future__ import annotations

import math

from comfyui_agent.lab.load.confidence import CONFIDENT, SURE, Share, difference_of, reach_of
from comfyui_agent.lab.load.resampling import FEWEST_VALUES, Estimate, Series, mean_of, percentile_of, rate_of
from comfyui_agent.lab.load.sample import MOST_CACHED
from comfyui_agent.lab.load.side import Side
from comfyui_agent.lab.reports.comparison import Judgement, Metric

RESOLUTION_SEC = 0.001
Figures = tuple[float | None, float | None]


def compare_times(metric: str, words: str, a: Series, b: Series, share: float | None) -> Metric:
    """A percentile of seconds, or their mean if `share` is None."""
    values = a.figure(share), b.figure(share)
    if values[0] is None or values[1] is None:
        lacking = " and ".join(side for side, value in zip("AB", values, strict=True) if value is None)
        return _undecided(metric, "s", values, Judgement.NOT_MEASURED, f"{words} was not measured in {lacking}.")
    both = f"{_seconds(values[0])} and {_seconds(values[1])}"
    is_alike = abs(values[0] - values[1]) < RESOLUTION_SEC
    if is_alike and min(len(a.values), len(b.values)) >= FEWEST_VALUES:
        return _undecided(metric, "s", values, Judgement.NOISE, f"{words} {both}: less than a millisecond apart.")
    for side, series in (("A", a), ("B", b)):
        reason = series.lack(share)
        if reason:
            return _undecided(metric, "s", values, Judgement.TOO_FEW, f"{words} {both}: {reason} in {side}.")
    first, second = (percentile_of(series, share) if share else mean_of(series) for series in (a, b))
    return _judged(metric, words, "s", first, second, -1)


def compare_throughput(a: Side, b: Side) -> Metric:
    """Images a minute; the scatter is that of the times between completions."""
    metric, unit, words, rates = "images_per_minute", "images/min", "throughput", (a.rate, b.rate)
    for name, side in (("A", a), ("B", b)):
        lacking = f"{words} was not measured in {name}"
        if not side.rate or not side.gaps.values:
            return _undecided(metric, unit, rates, Judgement.NOT_MEASURED, f"{lacking}.")
        if side.cached.hits and side.cached.value > MOST_CACHED:
            sentence = f"{lacking}: the cache answered too often."
            return _undecided(metric, unit, rates, Judgement.NOT_MEASURED, sentence)
        reason = side.gaps.lack(None)
        if reason:
            return _undecided(metric, unit, rates, Judgement.TOO_FEW, f"{words}: {reason} in {name}.")
    first, second = (rate_of(side.rate or 0.0, side.images, side.gaps) for side in (a, b))
    return _judged(metric, words, unit, first, second, 1)


def compare_shares(metric: str, words: str, a: Share, b: Share, good: int) -> Metric:
    """A share of all. `good` is the sign of an improvement."""
    if not a.total or not b.total:
        side = " and ".join(name for name, share in (("A", a), ("B", b)) if not share.total)
        reason = f"{words}: nothing was measured in {side}."
        return _undecided(metric, "share", (None, None), Judgement.NOT_MEASURED, reason)
    values, change = (a.value, b.value), b.value - a.value
    both = f"{a} and {b}"
    if min(a.total, b.total) < FEWEST_VALUES:
        reason = f"{words} {both}: at least {FEWEST_VALUES} are needed."
        return _metric(metric, "share", values, Judgement.TOO_FEW, reason, change)
    low, high = difference_of(a, b, CONFIDENT)
    surely = difference_of(a, b, SURE)
    verdict = _side_of_zero(low, high, good)
    what = "no difference beyond noise" if verdict is Judgement.NOISE else f"{verdict}"
    sentence = f"{words} {both}: {what} ({_points(low)} to {_points(high)} points, 95 %)."
    is_sure = surely[0] > 0 or surely[1] < 0
    return _metric(metric, "share", values, verdict, sentence, change, (low, high), is_sure)


def short(metric: Metric) -> str:
    """The name of a figure and its change, in a few words."""
    name = metric.metric.removesuffix("_sec").replace("avg_", "mean_").replace("_", " ")
    shown = _percent(metric.change) if metric.unit != "share" else f"{_points(metric.change or 0.0)} points"
    return f"{name} ({shown})"


def _judged(metric: str, words: str, unit: str, a: Estimate, b: Estimate, good: int) -> Metric:
    """Whether two figures differ by more than their scatter. `good` is the sign of an improvement."""
    values, change = (a.value, b.value), _relative(a.value, b.value)
    both = f"{_quantity(a.value, unit)} and {_quantity(b.value, unit)}"
    if change is None or b.value <= 0:
        sentence = f"{words} {both}: no relative change can be told from nothing."
        return _metric(metric, unit, values, Judgement.NOISE, sentence, None)
    reach = reach_of(a, b, CONFIDENT)
    centre = math.log(b.value / a.value)
    low, high = math.expm1(centre - reach), math.expm1(min(centre + reach, 50.0))
    verdict = _side_of_zero(low, high, good)
    interval = f"95 %: {_percent(low)} to {_percent(high)}"
    if verdict is Judgement.NOISE:
        sentence = f"{words} {both}: {_percent(change)} is within noise ({interval})."
    else:
        sentence = f"{words} is {verdict}: {both}, {_percent(change)} ({interval})."
    is_sure = abs(centre) > reach_of(a, b, SURE)
    return _metric(metric, unit, values, verdict, sentence, change, (low, high), is_sure)


def _undecided(metric: str, unit: str, values: Figures, verdict: Judgement, sentence: str) -> Metric:
    """A figure without an interval."""
    return _metric(metric, unit, values, verdict, sentence, _relative(*values))


def _metric(
    metric: str,
    unit: str,
    values: Figures,
    verdict: Judgement,
    sentence: str,
    change: float | None,
    interval: Figures = (None, None),
    is_sure: bool = False,
) -> Metric:
    a, b = values
    low, high = interval
    return Metric(
        metric=metric,
        unit=unit,
        a=a,
        b=b,
        change=change,
        low=low,
        high=high,
        verdict=verdict,
        sentence=sentence,
        is_sure=is_sure,
    )


def _side_of_zero(low: float, high: float, good: int) -> Judgement:
    if low <= 0 <= high:
        return Judgement.NOISE
    return Judgement.BETTER if (low > 0) == (good > 0) else Judgement.WORSE


def _relative(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or a <= 0 else b / a - 1


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s"


def _quantity(value: float, unit: str) -> str:
    return _seconds(value) if unit == "s" else f"{value:.1f} {unit}"


def _percent(change: float | None) -> str:
    return "unknown" if change is None else f"{change * 100:+.1f} %"


def _points(change: float) -> str:
    return f"{change * 100:+.1f}"
