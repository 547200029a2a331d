"""One figure of two load tests: better, worse, or noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

from comfyui_agent.lab.load.comparison_side import Side
from comfyui_agent.lab.load.confidence import CONFIDENT, SURE, Share, difference_of, reach_of
from comfyui_agent.lab.load.resampling import FEWEST_VALUES, Estimate, Series, mean_of, percentile_of, rate_of

RESOLUTION_SEC = 0.001
MOST_CACHED = 0.1


class Judgement(str, Enum):
    """What a difference is."""

    BETTER = "better"
    WORSE = "worse"
    NOISE = "noise"
    TOO_FEW = "too few"
    NOT_MEASURED = "not measured"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Metric:
    """One figure of both runs. Changes are relative; those of shares are differences of the shares."""

    metric: str
    unit: str
    a: float | None
    b: float | None
    change: float | None
    low: float | None
    high: float | None
    verdict: Judgement
    sentence: str
    is_sure: bool = False
    """Whether it would still stand if one asked for 99 % instead of 95 %."""

    @property
    def short(self) -> str:
        """Its name and its change, in a few words."""
        name = self.metric.removesuffix("_sec").replace("avg_", "mean_").replace("_", " ")
        shown = _percent(self.change) if self.unit != "share" else f"{_points(self.change or 0.0)} points"
        return f"{name} ({shown})"

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"metric": self.metric, "unit": self.unit}
        facts |= {key: _rounded(getattr(self, key)) for key in ("a", "b", "change", "low", "high")}
        return facts | {"verdict": str(self.verdict), "sentence": self.sentence}


def timed(metric: str, words: str, a: Series, b: Series, share: float | None) -> Metric:
    """A percentile, or the mean, of seconds."""

    def blank(verdict: Judgement, sentence: str) -> Metric:
        return Metric(metric, "s", values[0], values[1], change, None, None, verdict, sentence)

    values = [series.figure(share) for series in (a, b)]
    change = _relative(values[0], values[1])
    lacking = [side for side, value in zip("AB", values, strict=True) if value is None]
    if values[0] is None or values[1] is None:
        return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {' and '.join(lacking)}.")
    both = f"{_seconds(values[0])} and {_seconds(values[1])}"
    is_alike = abs(values[0] - values[1]) < RESOLUTION_SEC
    if is_alike and min(len(a.values), len(b.values)) >= FEWEST_VALUES:
        return blank(Judgement.NOISE, f"{words} {both}: less than a millisecond apart.")
    for side, series in (("A", a), ("B", b)):
        reason = series.lack(share)
        if reason:
            return blank(Judgement.TOO_FEW, f"{words} {both}: {reason} in {side}.")
    estimates = [percentile_of(series, share) if share else mean_of(series) for series in (a, b)]
    return _judged(metric, words, "s", estimates[0], estimates[1], -1)


def throughput(a: Side, b: Side) -> Metric:
    """Images a minute; the scatter is that of the times between completions."""

    def blank(verdict: Judgement, sentence: str) -> Metric:
        return Metric(metric, "images/min", a.rate, b.rate, _relative(a.rate, b.rate), None, None, verdict, sentence)

    metric, words = "images_per_minute", "throughput"
    for name, side in (("A", a), ("B", b)):
        if not side.rate or not side.gaps.values:
            return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {name}.")
        if side.cached.hits and side.cached.value > MOST_CACHED:
            return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {name}: the cache answered too often.")
        reason = side.gaps.lack(None)
        if reason:
            return blank(Judgement.TOO_FEW, f"{words}: {reason} in {name}.")
    rates = [rate_of(side.rate or 0.0, side.images, side.gaps) for side in (a, b)]
    return _judged(metric, words, "images/min", rates[0], rates[1], 1)


def proportion(metric: str, words: str, a: Share, b: Share, good: int) -> Metric:
    """A share of all. `good` is the sign of an improvement."""
    if not a.total or not b.total:
        side = " and ".join(name for name, share in (("A", a), ("B", b)) if not share.total)
        reason = f"{words}: nothing was measured in {side}."
        return Metric(metric, "share", None, None, None, None, None, Judgement.NOT_MEASURED, reason)
    change = b.value - a.value
    both = f"{a} and {b}"
    if min(a.total, b.total) < FEWEST_VALUES:
        reason = f"{words} {both}: at least {FEWEST_VALUES} are needed."
        return Metric(metric, "share", a.value, b.value, change, None, None, Judgement.TOO_FEW, reason)
    low, high = difference_of(a, b, CONFIDENT)
    surely = difference_of(a, b, SURE)
    verdict = _side_of_zero(low, high, good)
    what = "no difference beyond noise" if verdict is Judgement.NOISE else f"{verdict}"
    sentence = f"{words} {both}: {what} ({_points(low)} to {_points(high)} points, 95 %)."
    is_sure = surely[0] > 0 or surely[1] < 0
    return Metric(metric, "share", a.value, b.value, change, low, high, verdict, sentence, is_sure)


def _judged(metric: str, words: str, unit: str, a: Estimate, b: Estimate, good: int) -> Metric:
    """Whether two figures differ by more than their scatter. `good` is the sign of an improvement."""
    change = _relative(a.value, b.value)
    both = f"{_quantity(a.value, unit)} and {_quantity(b.value, unit)}"
    if change is None or b.value <= 0:
        words = f"{words} {both}: no relative change can be told from nothing."
        return Metric(metric, unit, a.value, b.value, None, None, None, Judgement.NOISE, words)
    reach = reach_of(a, b, CONFIDENT)
    centre = math.log(b.value / a.value)
    low, high = math.expm1(centre - reach), math.expm1(min(centre + reach, 50.0))
    verdict = _side_of_zero(low, high, good)
    is_sure = abs(centre) > reach_of(a, b, SURE)
    if verdict is Judgement.NOISE:
        sentence = f"{words} {both}: {_percent(change)} is within noise ({_interval(low, high)})."
    else:
        sentence = f"{words} is {verdict}: {both}, {_percent(change)} ({_interval(low, high)})."
    return Metric(metric, unit, a.value, b.value, change, low, high, verdict, sentence, is_sure)


def _side_of_zero(low: float, high: float, good: int) -> Judgement:
    if low <= 0 <= high:
        return Judgement.NOISE
    return Judgement.BETTER if (low > 0) == (good > 0) else Judgement.WORSE


def _relative(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None or a <= 0 else b / a - 1


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.1 else f"{value:.2f} s"


def _quantity(value: float, unit: str) -> str:
    return _seconds(value) if unit == "s" else f"{value:.1f} {unit}"


def _percent(change: float | None) -> str:
    return "unknown" if change is None else f"{change * 100:+.1f} %"


def _points(change: float) -> str:
    return f"{change * 100:+.1f}"


def _interval(low: float, high: float) -> str:
    return f"95 %: {_percent(low)} to {_percent(high)}"
