"""Two load tests compared: what became better or worse, and what is noise.

Jobs that queue behind each other are not independent, so the scatter of a figure is found by resampling whole stretches
of a run, in the order in which its jobs ended (circular moving blocks). A stretch is a tenth of the run, or longer
where jobs hang together for longer. Half a dozen stretches say less than a hundred jobs seem to, which is what
Student's t is for. Only the scatter within the two runs is known: what differs from run to run, such as a card that
was warm already, shows when a run is repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul, sub
from statistics import NormalDist, fmean
from typing import Any

from comfyui_agent.lab.load.reports import BadReport, Report, ReportKind
from comfyui_agent.lab.load.rows import Row
from comfyui_agent.lab.measuring.statistics import percentile

SEED = 20_26
REPLICATES = 300
STRETCHES = 10
FEWEST_VALUES = 10
FEWEST_STRETCHES = 5
FEWEST_PEAKS = 3
"""A percentile that was passed in fewer separate stretches of time rests on single events."""
THRESHOLDS = 48
MEMORIES = 3
"""A stretch is so many times as long as what a run remembers."""
WINDOW = 5
FINEST = 1000
"""Longer series are looked at in so many steps to see how long they remember."""
CONFIDENT, SURE = 0.95, 0.99
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

    def as_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"metric": self.metric, "unit": self.unit}
        facts |= {key: _rounded(getattr(self, key)) for key in ("a", "b", "change", "low", "high")}
        return facts | {"verdict": str(self.verdict), "sentence": self.sentence}


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
    of_a, of_b = _Run(a), _Run(b)
    durations = [
        _timed(f"{name}_duration_sec", f"latency {name}", of_a.durations, of_b.durations, share)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    ]
    metrics = (
        *durations,
        _timed("avg_duration_sec", "mean latency", of_a.durations, of_b.durations, None),
        _timed("p50_exec_sec", "median execution", of_a.executions, of_b.executions, 0.5),
        _timed("p50_queue_sec", "median wait", of_a.waits, of_b.waits, 0.5),
        _throughput(of_a, of_b),
        _proportion("success_rate", "success rate", of_a.completed, of_a.total, of_b.completed, of_b.total, 1),
        _proportion("cached_share", "cached answers", of_a.cached, of_a.completed, of_b.cached, of_b.completed, -1),
    )
    grave, light = _grave_differences(a, b), [*_other_differences(a, b), *_weaknesses(of_a, of_b)]
    return Comparison(_side(a), _side(b), (*grave, *light), metrics, _conclusion(metrics, is_fair=not grave))


@dataclass(frozen=True)
class _Series:
    """Values in the order in which their jobs ended, and how many jobs waited at a time."""

    values: Sequence[float]
    waiting: float = 0.0

    @cached_property
    def stretch(self) -> float:
        """How many jobs in a row are taken as one piece."""
        count = len(self.values)
        return max(count / STRETCHES, 2 * (1 + self.waiting), MEMORIES * _memory(self.values) if count >= 30 else 1.0)

    @cached_property
    def draws(self) -> tuple[int, list[list[int]]]:
        """The length of a block, and where the blocks of each replicate begin; always the same."""
        count, length, chance = len(self.values), max(1, round(self.stretch)), random.Random(SEED)
        return length, [chance.choices(range(count), k=max(1, round(count / length))) for _ in range(REPLICATES)]


class _Run:
    """What of a report is compared. Answers from the cache are left out of the times: they measured nothing."""

    def __init__(self, report: Report) -> None:
        self.report = report
        completed = [row for row in report.rows if row.is_completed]
        rendered = [row for row in completed if not row.cached]
        self.total, self.completed = len(report.rows), len(completed)
        self.cached = self.completed - len(rendered)
        wall = report.wall_clock_sec
        waits = _known(row.queue_sec for row in rendered)
        waiting = sum(waits) / wall if wall > 0 else 0.0
        self.durations = _Series(_known(row.duration_sec for row in rendered), waiting)
        self.executions = _Series(_known(row.exec_sec for row in rendered))
        self.waits = _Series(waits, waiting)
        self.rate = sum(row.images for row in completed) / wall * 60 if wall > 0 else None
        self.gaps = _Series(_gaps(completed) if report.has_times else ())
        self.images = [float(row.images) for row in completed]

    @property
    def cached_share(self) -> float:
        return self.cached / self.completed if self.completed else 0.0


@dataclass(frozen=True)
class _Estimate:
    """A figure of one run: its scatter, and on how many independent pieces that rests."""

    value: float
    scatter: float
    pieces: float


def _timed(metric: str, words: str, a: _Series, b: _Series, share: float | None) -> Metric:
    """A percentile, or the mean, of seconds."""

    def blank(verdict: Judgement, sentence: str) -> Metric:
        return Metric(metric, "s", values[0], values[1], change, None, None, verdict, sentence)

    values = [_figure(series.values, share) for series in (a, b)]
    change = _relative(values[0], values[1])
    lacking = [side for side, value in zip("AB", values, strict=True) if value is None]
    if values[0] is None or values[1] is None:
        return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {' and '.join(lacking)}.")
    both = f"{_seconds(values[0])} and {_seconds(values[1])}"
    is_alike = abs(values[0] - values[1]) < RESOLUTION_SEC
    if is_alike and min(len(a.values), len(b.values)) >= FEWEST_VALUES:
        return blank(Judgement.NOISE, f"{words} {both}: less than a millisecond apart.")
    for side, series in (("A", a), ("B", b)):
        reason = _too_few(series, share)
        if reason:
            return blank(Judgement.TOO_FEW, f"{words} {both}: {reason} in {side}.")
    estimates = [_percentile_of(series, share) if share else _mean_of(series) for series in (a, b)]
    return _judged(metric, words, "s", estimates[0], estimates[1], -1)


def _throughput(a: _Run, b: _Run) -> Metric:
    """Images a minute; the scatter is that of the times between completions."""

    def blank(verdict: Judgement, sentence: str) -> Metric:
        return Metric(metric, "images/min", a.rate, b.rate, _relative(a.rate, b.rate), None, None, verdict, sentence)

    metric, words = "images_per_minute", "throughput"
    for side, run in (("A", a), ("B", b)):
        if not run.rate or not run.gaps.values:
            return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {side}.")
        if run.cached_share > MOST_CACHED:
            return blank(Judgement.NOT_MEASURED, f"{words} was not measured in {side}: the cache answered too often.")
        reason = _too_few(run.gaps, None)
        if reason:
            return blank(Judgement.TOO_FEW, f"{words}: {reason} in {side}.")
    return _judged(metric, words, "images/min", _rate_of(a), _rate_of(b), 1)


def _judged(metric: str, words: str, unit: str, a: _Estimate, b: _Estimate, good: int) -> Metric:
    """Whether two figures differ by more than their scatter. `good` is the sign of an improvement."""
    change = _relative(a.value, b.value)
    both = f"{_quantity(a.value, unit)} and {_quantity(b.value, unit)}"
    if change is None or b.value <= 0:
        words = f"{words} {both}: no relative change can be told from nothing."
        return Metric(metric, unit, a.value, b.value, None, None, None, Judgement.NOISE, words)
    spread, freedom = _together(a, b)
    reach = spread * _student(CONFIDENT, freedom)
    centre = math.log(b.value / a.value)
    low, high = math.expm1(centre - reach), math.expm1(min(centre + reach, 50.0))
    verdict = _side_of_zero(low, high, good)
    is_sure = abs(centre) > spread * _student(SURE, freedom)
    if verdict is Judgement.NOISE:
        told = f"{words} {both}: {_percent(change)} is within noise ({_interval(low, high)})."
    else:
        told = f"{words} is {verdict}: {both}, {_percent(change)} ({_interval(low, high)})."
    return Metric(metric, unit, a.value, b.value, change, low, high, verdict, told, is_sure)


def _proportion(metric: str, words: str, hits_a: int, of_a: int, hits_b: int, of_b: int, good: int) -> Metric:
    """A share of all, by Newcombe's interval for the difference of two."""
    if not of_a or not of_b:
        side = " and ".join(name for name, count in (("A", of_a), ("B", of_b)) if not count)
        reason = f"{words}: nothing was measured in {side}."
        return Metric(metric, "share", None, None, None, None, None, Judgement.NOT_MEASURED, reason)
    a, b = hits_a / of_a, hits_b / of_b
    both = f"{hits_a} of {of_a} and {hits_b} of {of_b}"
    if min(of_a, of_b) < FEWEST_VALUES:
        reason = f"{words} {both}: at least {FEWEST_VALUES} are needed."
        return Metric(metric, "share", a, b, b - a, None, None, Judgement.TOO_FEW, reason)
    low, high = _newcombe(hits_a, of_a, hits_b, of_b, CONFIDENT)
    surely = _newcombe(hits_a, of_a, hits_b, of_b, SURE)
    verdict = _side_of_zero(low, high, good)
    what = "no difference beyond noise" if verdict is Judgement.NOISE else f"{verdict}"
    told = f"{words} {both}: {what} ({_points(low)} to {_points(high)} points, 95 %)."
    return Metric(metric, "share", a, b, b - a, low, high, verdict, told, surely[0] > 0 or surely[1] < 0)


def _newcombe(hits_a: int, of_a: int, hits_b: int, of_b: int, confidence: float) -> tuple[float, float]:
    a, b = hits_a / of_a, hits_b / of_b
    (low_a, high_a), (low_b, high_b) = _wilson(hits_a, of_a, confidence), _wilson(hits_b, of_b, confidence)
    return b - a - math.hypot(b - low_b, high_a - a), b - a + math.hypot(high_b - b, a - low_a)


def _wilson(hits: int, total: int, confidence: float) -> tuple[float, float]:
    z = _normal(confidence)
    share, weight = hits / total, z * z / total
    middle = (share + weight / 2) / (1 + weight)
    reach = z / (1 + weight) * math.sqrt(share * (1 - share) / total + weight / (4 * total))
    return (0.0 if hits == 0 else middle - reach), (1.0 if hits == total else middle + reach)


def _too_few(series: _Series, share: float | None) -> str:
    """Why nothing can be said of a series; empty if something can."""
    values = series.values
    if len(values) < FEWEST_VALUES:
        return f"{len(values)} values are too few, at least {FEWEST_VALUES} are needed,"
    pieces = len(values) / series.stretch
    if pieces < FEWEST_STRETCHES:
        return f"{len(values)} jobs that queue behind each other say as much as {max(1, round(pieces))} on their own"
    if share is not None and _peaks(values, percentile(values, share)) < FEWEST_PEAKS:
        return f"{len(values)} values are too few for this percentile"
    return ""


def _memory(values: Sequence[float]) -> float:
    """How many jobs in a row say as much as one on its own: the integrated time of autocorrelation, after Sokal."""
    coarse = math.ceil(len(values) / FINEST)
    if coarse > 1:
        return coarse * _memory(_block_sums(values, coarse)[: 1 - coarse : coarse])
    mean = fmean(values)
    off = [value - mean for value in values]
    whole = sum(map(mul, off, off))
    time = 1.0
    if whole > 0:
        for lag in range(1, len(values) // 2):
            time += 2 * sum(map(mul, off, off[lag:])) / whole
            if lag >= WINDOW * time:
                break
    return max(1.0, time)


def _block_sums(values: Sequence[float], length: int) -> list[float]:
    """The sum of the block that begins at each place; the last ones go on at the beginning."""
    before = [0.0, *accumulate([*values, *values[: length - 1]])]
    return list(map(sub, before[length:], before))


def _estimate(value: float, replicates: Sequence[float], count: int, drawn: int, pieces: float) -> _Estimate:
    """The scatter is that of the logarithm; a replicate that is nothing at all has none."""
    logs = [math.log(each) for each in replicates if each > 0]
    scatter = _deviation(logs) * math.sqrt(drawn / count) if len(logs) == len(replicates) else math.inf
    return _Estimate(value, scatter, pieces)


def _mean_of(series: _Series) -> _Estimate:
    values, count = series.values, len(series.values)
    length, draws = series.draws
    sums = _block_sums(values, length)
    drawn = length * len(draws[0])
    replicates = [sum(map(sums.__getitem__, draw)) / drawn for draw in draws]
    return _estimate(fmean(values), replicates, count, drawn, count / series.stretch)


def _rate_of(run: _Run) -> _Estimate:
    count = len(run.gaps.values)
    length, draws = run.gaps.draws
    images, times = _block_sums(run.images, length), _block_sums(run.gaps.values, length)
    replicates = []
    for draw in draws:
        time = sum(map(times.__getitem__, draw))
        replicates.append(sum(map(images.__getitem__, draw)) / time if time > 0 else 0.0)
    drawn = length * len(draws[0])
    return _estimate(run.rate or 0.0, replicates, count, drawn, count / run.gaps.stretch)


def _percentile_of(series: _Series, share: float) -> _Estimate:
    """Instead of sorting each replicate, count in each block what lies below a few dozen thresholds around it."""
    values, count = series.values, len(series.values)
    length, draws = series.draws
    drawn = length * len(draws[0])
    value = percentile(values, share)
    under = _block_sums([each <= value for each in values], length)
    doubt = _deviation([sum(map(under.__getitem__, draw)) / drawn for draw in draws])
    thresholds = _thresholds(values, share, 5 * doubt)
    below: dict[int, list[float]] = {}
    wanted = 1 + share * (drawn - 1)

    def is_enough(place: int, draw: list[int]) -> bool:
        if place not in below:
            below[place] = _block_sums([each <= thresholds[place] for each in values], length)
        return sum(map(below[place].__getitem__, draw)) >= wanted

    replicates = [thresholds[_first(len(thresholds), is_enough, draw)] for draw in draws]
    pieces = min(count / series.stretch, _peaks(values, value))
    return _estimate(value, replicates, count, drawn, pieces)


def _thresholds(values: Sequence[float], share: float, reach: float) -> list[float]:
    """Some of the values around a percentile, from below it to above it by a share."""
    ordered, last = sorted(values), len(values) - 1
    low, high = max(0, math.floor((share - reach) * last)), min(last, math.ceil((share + reach) * last))
    steps = min(THRESHOLDS, high - low + 1)
    return sorted({ordered[round(low + (high - low) * step / max(1, steps - 1))] for step in range(steps)})


def _first(count: int, holds: Callable[[int, list[int]], bool], draw: list[int]) -> int:
    """The first place where something holds that goes on holding; the last if it never does."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle, draw) else (middle + 1, high)
    return low


def _peaks(values: Sequence[float], threshold: float) -> int:
    """How often a series rises above a threshold; jobs in a row count once. One that never changes has no need to."""
    if min(values) == max(values):
        return len(values)
    above = [False, *(value > threshold for value in values)]
    return sum(later and not earlier for earlier, later in pairwise(above))


def _together(a: _Estimate, b: _Estimate) -> tuple[float, float]:
    """The scatter of the difference, and its degrees of freedom after Welch."""
    spread = math.hypot(a.scatter, b.scatter)
    if spread in (0.0, math.inf):
        return spread, 1.0
    parts = ((each.scatter / spread) ** 4 / max(1.0, each.pieces - 1) for each in (a, b))
    return spread, 1 / sum(parts)


def _student(confidence: float, freedom: float) -> float:
    """The quantile of Student's t for a two-sided interval, by its expansion around the normal one."""
    z, n = _normal(confidence), max(1.0, freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / n + second / n**2 + third / n**3


def _normal(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _side_of_zero(low: float, high: float, good: int) -> Judgement:
    if low <= 0 <= high:
        return Judgement.NOISE
    return Judgement.BETTER if (low > 0) == (good > 0) else Judgement.WORSE


def _conclusion(metrics: Sequence[Metric], *, is_fair: bool) -> str:
    """One sentence. With this many figures one of them leaves its 95 % by chance now and then, so 99 % decide."""
    told = [metric for metric in metrics if metric.metric != "cached_share"]
    differing = [metric for metric in told if metric.verdict in (Judgement.BETTER, Judgement.WORSE)]
    sure = [metric for metric in differing if metric.is_sure]
    if sure:
        parts = [
            f"{word} in {', '.join(_short(metric) for metric in sure if metric.verdict is word)}"
            for word in (Judgement.WORSE, Judgement.BETTER)
            if any(metric.verdict is word for metric in sure)
        ]
        words = f"B is {' and '.join(parts)}"
    elif differing:
        names = ", ".join(_short(metric) for metric in differing)
        words = f"No difference is certain; {names} may be one, or chance: repeat the run"
    elif all(metric.verdict in (Judgement.TOO_FEW, Judgement.NOT_MEASURED) for metric in told):
        words = "Too little was measured to tell A and B apart"
    else:
        words = "Nothing but noise: A and B differ in nothing that was measured well enough"
    return words + ("." if is_fair else "; but the runs were not alike, see the cautions.")


def _short(metric: Metric) -> str:
    name = metric.metric.removesuffix("_sec").replace("avg_", "mean_").replace("_", " ")
    shown = _percent(metric.change) if metric.unit != "share" else f"{_points(metric.change or 0.0)} points"
    return f"{name} ({shown})"


LOAD = {
    "mode": "the mode",
    "levels": "the load (levels)",
    "concurrency": "the concurrency",
    "rate": "the rate",
    "books": "the books at once",
    "pages": "the pages of a book",
    "parallel_pages": "parallel_pages",
    "arrivals": "the arrivals",
    "same_seeds": "same_seeds",
}
UNTOLD = {*LOAD, "seed", "server", "servers", "output", "baseline", "workflow"}
VERSIONS = {"comfyui_version": "the ComfyUI version", "pytorch": "the PyTorch version", "driver": "the driver"}


def _grave_differences(a: Report, b: Report) -> list[str]:
    """Why the two measured different things."""
    found = []
    if a.workflow.get("sha256") != b.workflow.get("sha256"):
        names = [str(each.workflow.get("name") or "an unnamed one") for each in (a, b)]
        found.append(f"The workflow differs: {names[0]} in A, {names[1]} in B; they cannot be compared.")
    if a.mode != b.mode:
        found.append(f"The mode differs: {a.mode or 'unknown'} in A, {b.mode or 'unknown'} in B.")
    keys = [key for key in LOAD if key != "mode"]
    return found + _differing(a.parameters, b.parameters, {key: LOAD[key] for key in keys})


def _other_differences(a: Report, b: Report) -> list[str]:
    others = sorted({*a.parameters, *b.parameters} - UNTOLD)
    found = _differing(a.parameters, b.parameters, {key: f"the parameter {key}" for key in others})
    if len(a.rows) != len(b.rows):
        found.append(f"The number of jobs differs: {len(a.rows)} in A, {len(b.rows)} in B.")
    sides = [{key: _list(server.get(key) for server in each.servers) for key in VERSIONS} for each in (a, b)]
    found += _differing(sides[0], sides[1], VERSIONS)
    cards = [{"devices": _list(_devices(server) for server in each.servers)} for each in (a, b)]
    found += _differing(cards[0], cards[1], {"devices": "the graphics card"})
    return found + _differing(a.environment, b.environment, {"e3": "the version of E3"})


def _weaknesses(*runs: _Run) -> list[str]:
    """What either run lacks."""
    found = []
    for side, run in zip("AB", runs, strict=True):
        if run.report.is_partial:
            found.append(f"{side} was stopped before its end: its slowest jobs may be missing.")
        if run.cached:
            found.append(
                f"{run.cached} of {run.completed} answers of {side} came from the cache: left out of the times."
            )
        if run.total - run.completed > MOST_CACHED * run.total:
            found.append(
                f"{run.total - run.completed} of {run.total} jobs of {side} failed: its times are of the rest."
            )
        if len(run.report.levels) > 1:
            found.append(f"{side} is a ramp of {len(run.report.levels)} levels: its times are a mixture of them all.")
    if all(run.report.mode == "open" for run in runs):
        found.append("In an open loop throughput is what was sent, as long as the servers keep up.")
    return found


def _differing(a: Mapping[str, Any], b: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    changed = [(words, a.get(key), b.get(key)) for key, words in names.items() if a.get(key) != b.get(key)]
    return [
        f"{words[0].upper()}{words[1:]} differs: {_told(old)} in A, {_told(new)} in B." for words, old, new in changed
    ]


def _told(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_told, value)) or "none"
    return "unknown" if value is None else str(value)[:120]


def _devices(server: Mapping[str, Any]) -> str:
    devices = server.get("devices")
    return ", ".join(str(each.get("name")) for each in devices or () if isinstance(each, dict))


def _list(values: Iterable[Any]) -> list[str]:
    return sorted({_told(value) for value in values})


def _side(report: Report) -> dict[str, Any]:
    """What a reader needs to know which run this was."""
    return {
        "name": report.name,
        "started_at": report.environment.get("started_at"),
        "workflow": report.workflow.get("name"),
        "mode": report.mode,
        "levels": [level.level for level in report.levels],
        "jobs": len(report.rows),
        "servers": [server.get("server") for server in report.servers],
        "comfyui_version": _list(server.get("comfyui_version") for server in report.servers),
        "devices": _list(_devices(server) for server in report.servers),
        "e3": report.environment.get("e3"),
        "partial": report.is_partial,
    }


def _gaps(completed: Sequence[Row]) -> list[float]:
    ends = [0.0, *(row.ended_seconds for row in completed)]
    return [max(0.0, later - earlier) for earlier, later in pairwise(ends)]


def _figure(values: Sequence[float], share: float | None) -> float | None:
    if not values:
        return None
    return fmean(values) if share is None else percentile(values, share)


def _deviation(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


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
