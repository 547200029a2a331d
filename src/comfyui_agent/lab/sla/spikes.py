"""Spikes of errors: failures that come in heaps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import SCENARIO
from comfyui_agent.lab.sla.logs import End, ends_of

WINDOW_SECONDS = 60.0
FEWEST_FAILURES = 3
TIMES_THE_BUDGET = 2.0
CHANCE = 0.001
FEWEST_ENDS = 10


def find_spikes(ends: Iterable[End], budget: float) -> list[list[End]]:
    """The spikes in the order of time, each with all that ended from its first failure to its last.

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
    return [ordered[begin : end + 1] for begin, end in stretches]


def is_spike(failures: int, ends: int, budget: float) -> bool:
    """Whether so many failures among what ended within a window are a spike."""
    if failures < FEWEST_FAILURES or failures <= TIMES_THE_BUDGET * budget * ends:
        return False
    return budget <= 0 or _likelihood(failures, ends, budget) < CHANCE


def _likelihood(failures: int, ends: int, rate: float) -> float:
    """The upper tail of the binomial. At twice the rate and more, terms halve, so the first ones are enough."""
    return sum(
        math.exp(
            math.lgamma(ends + 1)
            - math.lgamma(count + 1)
            - math.lgamma(ends - count + 1)
            + count * math.log(rate)
            + (ends - count) * math.log1p(-rate)
        )
        for count in range(failures, min(ends, failures + 50) + 1)
    )


def judge_spikes(report: LoadReport, logs: Sequence[Path], targets: Sla) -> tuple[Finding | None, list[str]]:
    """Whether errors came in spikes in a load test, and notes on its logs. None where faults were made on purpose."""
    if report.summary.mode == SCENARIO:
        return None, []
    run = ends_of(report, logs)
    spikes = find_spikes(run.ends, targets.error_rate)
    if not spikes and len(run.ends) < FEWEST_ENDS:
        known = counted(len(run.ends), "end with a time is", "ends with a time are")
        few = f"{known} too few to see a spike: {FEWEST_ENDS} are needed."
        verdict = TargetVerdict.NOT_MEASURED
        return Finding.on(Target.SPIKES, targets, None, verdict, few, jobs_needed=FEWEST_ENDS), run.notes
    seen = f"{counted(len(spikes), 'spike') if spikes else 'No spike'} among {counted(len(run.ends), 'end')}"
    seen += f", {run.logged} of them told by the metrics log"
    if spikes:
        largest = max(spikes, key=lambda spike: sum(end.is_failure for end in spike))
        failures = [end for end in largest if end.is_failure]
        reasons = Counter(sorted(end.why for end in failures if end.why)).most_common(1)
        why = f", mostly {reasons[0][0]}" if reasons else ""
        when = f"from {_clock(largest[0].at)} to {_clock(largest[-1].at)} UTC"
        seen += f": {len(failures)} of {len(largest)} failed {when}{why}"
    return Finding.judge(Target.SPIKES, targets, float(len(spikes)), seen, is_partial=report.is_partial), run.notes


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
