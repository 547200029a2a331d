"""The scatter of a figure of one run, by a block bootstrap.

Jobs that queue behind each other are not independent, so whole stretches of a run are resampled, in the order in which
its jobs ended (circular moving blocks). A stretch is a tenth of the run, or longer where jobs depend on each other for
longer. The same values always give the same answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul, sub
from statistics import fmean

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.measurement.statistics import percentile

SEED = 20_26
REPLICATES = 300
STRETCHES = 10
FEWEST_VALUES = 10
FEWEST_STRETCHES = 5
FEWEST_PEAKS = 3
"""A percentile needs this many separate peaks above it; with fewer it rests on single events."""
THRESHOLDS = 48
AUTOCORRELATION_TIMES = 3
"""A stretch is at least so many autocorrelation times long."""
WINDOW = 5
FINEST = 1000
"""Longer series are reduced to about so many values before their autocorrelation is computed."""


@dataclass(frozen=True)
class Series:
    """Values in the order in which their jobs ended, and how many jobs waited at a time."""

    values: Sequence[float]
    waiting: float = 0.0

    @cached_property
    def stretch(self) -> float:
        """How many jobs in a row make one block."""
        count = len(self.values)
        return max(
            count / STRETCHES,
            2 * (1 + self.waiting),
            AUTOCORRELATION_TIMES * _autocorrelation_time(self.values) if count >= 30 else 1.0,
        )

    @cached_property
    def draws(self) -> tuple[int, list[list[int]]]:
        """The length of a block, and where the blocks of each replicate begin."""
        count, length, chance = len(self.values), max(1, round(self.stretch)), random.Random(SEED)
        return length, [chance.choices(range(count), k=max(1, round(count / length))) for _ in range(REPLICATES)]

    def figure(self, share: float | None) -> float | None:
        """The percentile of a share, or the mean if `share` is None; None without values."""
        if not self.values:
            return None
        return fmean(self.values) if share is None else percentile(self.values, share)

    def lack(self, share: float | None) -> str:
        """Why that percentile, or the mean, cannot be judged; empty if it can."""
        values = self.values
        if len(values) < FEWEST_VALUES:
            return f"{counted(len(values), 'value is', 'values are')} too few, at least {FEWEST_VALUES} are needed,"
        pieces = len(values) / self.stretch
        if pieces < FEWEST_STRETCHES:
            alone = max(1, round(pieces))
            return f"{len(values)} jobs that queue behind each other say as much as {alone} on their own"
        if share is not None and _peaks(values, percentile(values, share)) < FEWEST_PEAKS:
            return f"{len(values)} values are too few for this percentile"
        return ""


@dataclass(frozen=True)
class Estimate:
    """A figure of one run, the scatter of its logarithm, and how many independent pieces that rests on."""

    value: float
    scatter: float
    pieces: float


def mean_of(series: Series) -> Estimate:
    values, count = series.values, len(series.values)
    length, draws = series.draws
    sums = _block_sums(values, length)
    drawn = length * len(draws[0])
    replicates = [sum(map(sums.__getitem__, draw)) / drawn for draw in draws]
    return _estimate(fmean(values), replicates, count, drawn, count / series.stretch)


def rate_of(rate: float, amounts: Sequence[float], times: Series) -> Estimate:
    """Amounts by the time that they took."""
    count = len(times.values)
    length, draws = times.draws
    amount_sums, time_sums = _block_sums(amounts, length), _block_sums(times.values, length)
    replicates = []
    for draw in draws:
        time = sum(map(time_sums.__getitem__, draw))
        replicates.append(sum(map(amount_sums.__getitem__, draw)) / time if time > 0 else 0.0)
    drawn = length * len(draws[0])
    return _estimate(rate, replicates, count, drawn, count / times.stretch)


def percentile_of(series: Series, share: float) -> Estimate:
    """Instead of sorting each replicate, count in each block the values below some thresholds around the percentile."""
    values, count = series.values, len(series.values)
    length, draws = series.draws
    drawn = length * len(draws[0])
    value = percentile(values, share)
    under = _block_sums([each <= value for each in values], length)
    probe_now = _deviation([sum(map(under.__getitem__, draw)) / drawn for draw in draws])
    thresholds = _thresholds(values, share, 5 * probe_now)
    below: dict[int, list[float]] = {}
    wanted = 1 + share * (drawn - 1)

    def is_enough(place: int, draw: list[int]) -> bool:
        if place not in below:
            below[place] = _block_sums([each <= thresholds[place] for each in values], length)
        return sum(map(below[place].__getitem__, draw)) >= wanted

    replicates = [thresholds[_first(len(thresholds), is_enough, draw)] for draw in draws]
    pieces = min(count / series.stretch, _peaks(values, value))
    return _estimate(value, replicates, count, drawn, pieces)


def _estimate(value: float, replicates: Sequence[float], count: int, drawn: int, pieces: float) -> Estimate:
    """The scatter of the logarithm; infinite if a replicate is zero."""
    logs = [math.log(each) for each in replicates if each > 0]
    scatter = _deviation(logs) * math.sqrt(drawn / count) if len(logs) == len(replicates) else math.inf
    return Estimate(value, scatter, pieces)


def _autocorrelation_time(values: Sequence[float]) -> float:
    """How many jobs in a row say as much as one alone: Sokal's integrated autocorrelation time."""
    coarse = math.ceil(len(values) / FINEST)
    if coarse > 1:
        return coarse * _autocorrelation_time(_block_sums(values, coarse)[: 1 - coarse : coarse])
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
    """The sum of the block that begins at each place. The last blocks continue at the beginning."""
    before = [0.0, *accumulate([*values, *values[: length - 1]])]
    return list(map(sub, before[length:], before))


def _thresholds(values: Sequence[float], share: float, reach: float) -> list[float]:
    """At most THRESHOLDS values around a percentile, from `reach` below it to `reach` above it."""
    ordered, last = sorted(values), len(values) - 1
    low, high = max(0, math.floor((share - reach) * last)), min(last, math.ceil((share + reach) * last))
    steps = min(THRESHOLDS, high - low + 1)
    return sorted({ordered[round(low + (high - low) * step / max(1, steps - 1))] for step in range(steps)})


def _first(count: int, holds: Callable[[int, list[int]], bool], draw: list[int]) -> int:
    """The first place from which on `holds` is true, by bisection; the last place if it never is."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle, draw) else (middle + 1, high)
    return low


def _peaks(values: Sequence[float], threshold: float) -> int:
    """How often a series rises above a threshold. For a constant series it is the number of values."""
    if min(values) == max(values):
        return len(values)
    above = [False, *(value > threshold for value in values)]
    return sum(later and not earlier for earlier, later in pairwise(above))


def _deviation(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
