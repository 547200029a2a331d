"""How much a figure of a run scatters by chance, by batch means.

Jobs that queue behind each other are not independent. So a run is cut into blocks of consecutive jobs, in the order in
which they ended, and the figure of each block is taken. Ten blocks and five are tried, and the wider interval counts:
where neighbours are alike, the longer blocks show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, stdev
from typing import Generic, TypeVar

from comfyui_agent.domain.texts import counted

BLOCKS = (5, 10)
FEWEST_BLOCKS = min(BLOCKS)
FEWEST_VALUES = 10
FEWEST_BEYOND = 3
"""A percentile needs this many values above it; with fewer it rests on single jobs."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Series(Generic[Value]):
    """Values in the order in which their jobs ended, and how many jobs waited at a time."""

    values: Sequence[Value]
    waiting: float = 0.0

    @property
    def most_blocks(self) -> int:
        """A block is at least twice as long as what a job waits behind."""
        return int(len(self.values) / (2 * (1 + self.waiting)))

    def lack(self, share: float | None = None) -> str:
        """Why a mean, or the percentile of a share, cannot be judged; empty if it can."""
        count = len(self.values)
        if count < FEWEST_VALUES:
            return f"{counted(count, 'value is', 'values are')} too few, at least {FEWEST_VALUES} are needed,"
        if self.most_blocks < FEWEST_BLOCKS:
            alone = max(1, self.most_blocks)
            return f"{count} jobs that queue behind each other say as much as {alone} on their own"
        if share is not None and count * (1 - share) < FEWEST_BEYOND:
            return f"{count} values are too few for this percentile"
        return ""

    def blocks(self, count: int) -> Iterator[Sequence[Value]]:
        count = min(count, self.most_blocks)
        ends = [round(number * len(self.values) / count) for number in range(count + 1)]
        return (self.values[begin:end] for begin, end in pairwise(ends))


def interval_reach(
    a: Series[Value], b: Series[Value], figure: Callable[[Sequence[Value]], float], confidence: float
) -> float:
    """Half the width of the interval for the logarithm of B / A. Infinite if a block has the figure zero."""
    return max(_welch([_logs(each.blocks(count), figure) for each in (a, b)], confidence) for count in BLOCKS)


def _logs(blocks: Iterator[Sequence[Value]], figure: Callable[[Sequence[Value]], float]) -> list[float]:
    return [math.log(value) if value > 0 else -math.inf for value in map(figure, blocks)]


def _welch(runs: Sequence[Sequence[float]], confidence: float) -> float:
    """The reach of Welch's t for the difference of two means."""
    if any(-math.inf in logs for logs in runs):
        return math.inf
    errors = [stdev(logs) ** 2 / len(logs) for logs in runs]
    whole = sum(errors)
    if whole == 0:
        return 0.0
    freedom = whole**2 / sum(error**2 / (len(logs) - 1) for error, logs in zip(errors, runs, strict=True))
    return math.sqrt(whole) * _student(confidence, freedom)


def _student(confidence: float, freedom: float) -> float:
    """The quantile of Student's t for a two-sided interval, by its expansion around the normal one."""
    z = normal_quantile(confidence)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / freedom + second / freedom**2 + third / freedom**3


@dataclass(frozen=True)
class Share:
    """`hits` of `total`."""

    hits: int
    total: int

    @property
    def value(self) -> float:
        return self.hits / self.total

    def __str__(self) -> str:
        return f"{self.hits} of {self.total}"

    def wilson(self, confidence: float) -> tuple[float, float]:
        z = normal_quantile(confidence)
        value, weight = self.value, z * z / self.total
        middle = (value + weight / 2) / (1 + weight)
        reach = z / (1 + weight) * math.sqrt(value * (1 - value) / self.total + weight / (4 * self.total))
        return (0.0 if self.hits == 0 else middle - reach), (1.0 if self.hits == self.total else middle + reach)


def difference_of(a: Share, b: Share, confidence: float) -> tuple[float, float]:
    """Newcombe's interval for B - A."""
    (low_a, high_a), (low_b, high_b) = a.wilson(confidence), b.wilson(confidence)
    difference = b.value - a.value
    low = difference - math.hypot(b.value - low_b, high_a - a.value)
    return low, difference + math.hypot(high_b - b.value, a.value - low_a)


def normal_quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
