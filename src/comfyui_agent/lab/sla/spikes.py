"""Finds spikes of errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_SECONDS = 60.0
FEWEST_FAILURES = 3
TIMES_THE_BUDGET = 2.0
CHANCE = 0.001
FEWEST_ENDS = 10


@dataclass(frozen=True, order=True)
class End:
    """A run that ended: when (seconds since 1970), how, and why."""

    at: float
    is_failure: bool
    why: str = ""


@dataclass(frozen=True)
class Spike:
    """Windows of failures that overlap: from when to when, and how many runs failed of how many that ended."""

    began: float
    ended: float
    failures: int
    ends: int
    why: str


def find_spikes(ends: Iterable[End], budget: float) -> list[Spike]:
    """The spikes in the order of time.

    A window of 60 seconds is part of a spike if at least 3 runs failed in it, these are more than twice the budget of
    all that ended in it, and a service that fails exactly as often as its budget allows would show so many failures
    in less than one of a thousand such windows. Windows that overlap are one spike.
    """
    ordered = sorted(ends)
    stretches: list[tuple[int, int]] = []
    first = failures = 0
    for last, end in enumerate(ordered):
        failures += end.is_failure
        while ordered[first].at <= end.at - WINDOW_SECONDS:
            failures -= ordered[first].is_failure
            first += 1
        if end.is_failure and is_spike(failures, last - first + 1, budget):
            begin = next(place for place in range(first, last + 1) if ordered[place].is_failure)
            if stretches and begin <= stretches[-1][1]:
                begin = stretches.pop()[0]
            stretches.append((begin, last))
    return [_spike(ordered[begin : end + 1]) for begin, end in stretches]


def is_spike(failures: int, ends: int, budget: float) -> bool:
    """Whether so many failures among what ended within a window are a spike."""
    if failures < FEWEST_FAILURES or failures <= TIMES_THE_BUDGET * budget * ends:
        return False
    return _likelihood(failures, ends, budget) < CHANCE


def _likelihood(failures: int, ends: int, rate: float) -> float:
    """The probability of so many or more failures at a rate (the upper tail of the binomial)."""
    if rate <= 0:
        return 0.0
    if rate >= 1:
        return 1.0
    term = math.exp(
        math.lgamma(ends + 1)
        - math.lgamma(failures + 1)
        - math.lgamma(ends - failures + 1)
        + failures * math.log(rate)
        + (ends - failures) * math.log1p(-rate)
    )
    total = 0.0
    for count in range(failures, ends + 1):
        total += term
        term *= (ends - count) / (count + 1) * rate / (1 - rate)
        if term < total * 1e-12:
            break
    return total


def _spike(ends: list[End]) -> Spike:
    failed = [end for end in ends if end.is_failure]
    reasons = [end.why for end in failed if end.why]
    most = max(sorted(set(reasons)), key=reasons.count, default="")
    return Spike(ends[0].at, ends[-1].at, len(failed), len(ends), most)
