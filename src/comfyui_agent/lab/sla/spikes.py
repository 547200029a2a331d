"""Spikes of errors: failures that come in heaps, by the metrics log of a run and by the rows of its report."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.events import EventName
from comfyui_agent.domain.texts import counted
from comfyui_agent.events.log import rotated
from comfyui_agent.lab.reports.fields import as_moment
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import SCENARIO

WINDOW_SECONDS = 60.0
FEWEST_FAILURES = 3
TIMES_THE_BUDGET = 2.0
CHANCE = 0.001
FEWEST_ENDS = 10
FAILURES = frozenset({EventName.JOB_FAILED.value, EventName.JOB_RETRY.value})
"""A run that failed counts, also if its job runs again."""
ENDS = FAILURES | {EventName.JOB_DONE.value}
SLACK_SECONDS = 1.0
"""Lines are written a little after the event."""


@dataclass(frozen=True, order=True)
class End:
    """A run that ended: when (seconds since 1970), how, and why. Ids are those of a line of the log, if it has them."""

    at: float
    is_failure: bool
    why: str = ""
    prompt_id: str = ""
    load_test: str = ""


@dataclass(frozen=True)
class RunEnds:
    """How the prompts of a run ended, each once; how many of them are in the logs; and notes on the logs."""

    ends: list[End]
    logged: int
    notes: list[str]


def ends_of(report: LoadReport, logs: Sequence[Path]) -> RunEnds:
    """By the metrics logs, without lines of other load tests; by the report's rows for what the logs lack."""
    began, ended = report.environment.began, report.environment.ended
    lines: list[End] = []
    notes, was_read, bad_lines = [], [], 0
    is_known = began is not None and ended is not None
    since, until = (began or 0.0) - SLACK_SECONDS, (ended or 0.0) + SLACK_SECONDS
    for path in _with_rotated(logs, began or 0.0) if is_known else ():
        try:
            found, bad = _read_log(path)
        except OSError as error:
            notes.append(f"{path} cannot be read: {os.strerror(error.errno) if error.errno else error}")
            continue
        lines += [each for each in found if since <= each.at <= until]
        was_read.append(str(path))
        bad_lines += bad
    prompts = {row.prompt_id for row in report.rows if row.prompt_id}
    own = {line.load_test for line in lines if line.prompt_id in prompts} | {report.environment.load_test or "", ""}
    logged = {
        (line.prompt_id or number, line.is_failure): line for number, line in enumerate(lines) if line.load_test in own
    }
    if not logs:
        notes.append("no metrics log was found: spikes were looked for in the report's own rows")
    elif was_read and not logged:
        names = ", ".join(was_read)
        notes.append(f"{names} tells nothing of this run: spikes were looked for in the report's own rows")
    if bad_lines:
        notes.append(f"lines of the metrics log that could not be read: {bad_lines}")
    ends = _ends_of_rows(report, without={prompt_id for prompt_id, _ in logged})
    return RunEnds([*logged.values(), *ends], len(logged), notes)


def _ends_of_rows(report: LoadReport, without: Collection[object]) -> Iterator[End]:
    began = report.environment.began if report.has_times else None
    for row in report.rows:
        at = as_moment(row.ended_at)
        if at is None and began is not None:
            at = began + row.ended_seconds
        if at is not None and row.prompt_id not in without:
            yield End(at, not row.is_completed, row.failure_class or str(row.status))


def _with_rotated(paths: Iterable[Path], began: float) -> list[Path]:
    """Logs, each after its rotated files that were still written when the run began."""
    found: list[Path] = []
    for path in paths:
        older = [each for each in rotated(path) if each.is_file() and each.stat().st_mtime >= began]
        found += [*reversed(older), path]
    return list(dict.fromkeys(found))


def _read_log(path: Path) -> tuple[list[End], int]:
    """The lines about ends, and how many lines could not be read. Lines about something else are not parsed."""
    found, bad_lines = [], 0
    with path.open("rb") as file:
        for line in file:
            if b'"job.' not in line:
                bad_lines += bool(line.strip()) and not line.lstrip().startswith(b"{")
                continue
            try:
                facts = json.loads(line)
                at, event = as_moment(facts["timestamp"]), facts["event"]
                is_end = event in ENDS
            except (ValueError, KeyError, TypeError, RecursionError):
                bad_lines += 1
                continue
            if at is not None and is_end:
                why, *ids = (str(facts.get(key) or "") for key in ("failure_class", "prompt_id", "load_test"))
                found.append(End(at, event in FAILURES, why[:60], *ids))
    return found, bad_lines


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
