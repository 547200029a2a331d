"""What a load test says of throughput, latency, errors and books at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.measurement import percentile
from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.reports.load import LoadReport, Row, RowStatus
from comfyui_agent.lab.reports.sla import PARTIAL, SLACK, Finding, Target, TargetVerdict, overall, quantity

MOST_CACHED = 0.1
"""The share of answers from the cache above which a run measured the cache."""
NEAR_BEST = 0.95
FEWEST_FOR_P95 = 20
FEWEST_FOR_THROUGHPUT = 10
FEWEST_FOR_NO_ERRORS = 100
"""Prompts without a failure that are taken as proof where not even one failure is allowed."""
SCENARIO, OPEN, BOOKS = "scenario", "open", "books"


@dataclass(eq=False)
class Level:
    """One level, judged by the targets, without answers from the cache. `where` names it if there are several.
    `unfinished` counts prompts taken back when the run was stopped in it; None if it came to its end."""

    targets: Sla
    rows: Sequence[Row]
    wall_clock_sec: float
    number: float
    where: str
    unfinished: int | None

    def __post_init__(self) -> None:
        rows, wall = self.rows, self.wall_clock_sec
        completed = [row for row in rows if row.is_completed]
        self.completed = len(completed)
        self.rendered = [row for row in completed if not row.cached]
        self.cached = len(completed) - len(self.rendered)
        self.failed = len(rows) - len(completed)
        self.worked_on = len(rows) - self.cached
        self.images = sum(row.images for row in self.rendered)
        self.images_per_minute = self.images / wall * 60 if wall > 0 and rows else None
        self.timeouts = [row for row in rows if row.status is RowStatus.TIMEOUT]
        timed = [*self.rendered, *self.timeouts]  # a timeout took at least as long as it was waited for
        self.latencies = [row.duration_sec for row in timed if row.duration_sec is not None]

    @property
    def offered_per_minute(self) -> float | None:
        """Images that were asked for each minute; None if the prompts do not say when they were sent."""
        starts = [row.sent_seconds for row in self.rows]
        span = max(starts, default=0.0) - min(starts, default=0.0)
        if span <= 0 or not self.rendered:
            return None
        return (len(starts) - 1) / span * 60 * self.images / len(self.rendered)

    @property
    def most_per_minute(self) -> float:
        """What the throughput would be if all that was taken back had been completed at once."""
        each = self.images / len(self.rendered) if self.rendered else 1.0
        return (self.images + (self.unfinished or 0) * each) / self.wall_clock_sec * 60

    @property
    def missed(self) -> list[str]:
        """Which of latency and errors it did not keep."""
        both = (self.latency, self.errors)
        return [each.target.label.lower() for each in both if each.verdict is TargetVerdict.MISSED]

    @property
    def verdict(self) -> TargetVerdict:
        return overall((self.latency, self.errors))

    def throughput(self, *, is_open: bool) -> Finding:
        wanted, target = self.targets.images_per_minute, Target.THROUGHPUT
        measured = self.images_per_minute
        if measured is None:
            return self._not_measured(target, "No job ran.")
        if self._cached:
            return self._not_measured(target, self._cached)
        seen = f"{counted(self.images, 'image')} in {self.wall_clock_sec:.1f} s{self.where}"
        if measured < wanted - SLACK:
            offered = self.offered_per_minute
            if is_open and offered is not None and offered < wanted and not self.missed:
                asked = f"{seen}, but only {offered:.3g} images/min were asked for: press harder."
                return self._not_measured(target, asked, measured)
            if self.unfinished is not None and self.most_per_minute >= wanted:
                return self._not_measured(target, f"{seen}; {PARTIAL}", measured)
        few = ""
        if len(self.rendered) < FEWEST_FOR_THROUGHPUT:
            jobs = counted(len(self.rendered), "job is", "jobs are")
            few = f"{seen}, but {jobs} too few: run at least {FEWEST_FOR_THROUGHPUT}."
        return self._judge(target, measured, seen, few, FEWEST_FOR_THROUGHPUT)

    @cached_property
    def latency(self) -> Finding:
        target = Target.LATENCY
        count = len(self.latencies)
        if not count:
            return self._not_measured(target, f"No job was completed{self.where}.")
        if self._cached:
            return self._not_measured(target, self._cached)
        measured = percentile(self.latencies, 0.95)
        within = quantity(measured, target, self.targets.p95_seconds)
        seen = f"95 of 100 results were there within {within}, of {counted(count, 'job')}"
        if self.timeouts:
            seen += f", {len(self.timeouts)} of them given up and counted with the time they were waited for"
        few = ""
        if count < FEWEST_FOR_P95:
            few = f"The slowest of {counted(count, 'job')} took {max(self.latencies):.3g} s{self.where}, but "
            few += f"{counted(count, 'job is', 'jobs are')} too few: run at least {FEWEST_FOR_P95}."
        return self._judge(target, measured, seen + self.where, few, FEWEST_FOR_P95)

    @cached_property
    def errors(self) -> Finding:
        wanted = self.targets.error_rate
        if not self.worked_on:
            return self._not_measured(Target.ERRORS, f"No job was rendered{self.where}.")
        measured, needed = self.failed / self.worked_on, jobs_for_errors(wanted)
        seen = f"{self.failed} of {counted(self.worked_on, 'job')} failed or timed out{self.where}"
        few = ""
        if self.worked_on < needed:
            few = f"{seen}, but it takes at least {needed} jobs to see a rate of {quantity(wanted, Target.ERRORS)}."
            seen += f"; so few jobs are a weak proof, run at least {needed}"
        return self._judge(Target.ERRORS, measured, seen, few, needed)

    @property
    def _cached(self) -> str:
        """That the cache answered too often; empty if it did not."""
        if self.cached <= MOST_CACHED * self.completed:
            return ""
        answers = f"{self.cached} of {counted(self.completed, 'answer')} came from the server's cache"
        return f"{answers}{self.where}: they measured nothing. Let the seeds vary."

    def _judge(self, target: Target, measured: float, seen: str, few: str, needed: int) -> Finding:
        return Finding.judge(
            target, self.targets, measured, seen, is_partial=self.unfinished is not None, few=few, jobs_needed=needed
        )

    def _not_measured(self, target: Target, why: str, measured: float | None = None) -> Finding:
        return Finding.on(target, self.targets, measured, TargetVerdict.NOT_MEASURED, why)


def levels_of(report: LoadReport, targets: Sla) -> list[Level]:
    """Each level of a load test, from the lowest. Of a run that was stopped, the last level is partial."""
    known, unfinished = report.levels, report.summary.unfinished if report.is_partial else None
    if len(known) < 2:
        number = float(known[0][0].level or 0.0) if known else 0.0
        return [Level(targets, report.rows, report.wall_clock_sec, number, "", unfinished)]
    last = max(known, key=lambda pair: max(row.sent_seconds for row in pair[1]))[0]
    found = []
    for each, rows in known:
        number, wall = float(each.level or 0.0), each.wall_clock_sec or 0.0
        where = f" at {level_text(number, each.unit)}"
        found.append(Level(targets, rows, wall, number, where, unfinished if each is last else None))
    return found


def judge_load(report: LoadReport, targets: Sla) -> list[Finding]:
    """The targets that a load test can judge. A ramp is judged at one level: of those that keep latency and errors and
    come near the highest throughput, the one with the most prompts; if none does, the lowest."""
    mode = report.summary.mode
    if mode == SCENARIO:
        return []
    levels = levels_of(report, targets)
    steady = [level for level in levels if not level.missed]
    chosen = _most_telling(steady) if steady else levels[0]
    found = [chosen.throughput(is_open=mode == OPEN), chosen.latency, chosen.errors]
    if mode == BOOKS:
        is_serial = report.environment.parameters.get("parallel_pages") is not True
        found.append(_concurrency(levels, targets, is_serial=is_serial))
    return found


def judge_levels(report: LoadReport, targets: Sla) -> dict[float, TargetVerdict]:
    """Whether each level kept latency and errors; levels without a job are left out."""
    return {level.number: level.verdict for level in levels_of(report, targets) if level.rows}


def jobs_for_errors(allowed: float) -> int:
    """How many prompts it takes to see a rate of errors: with fewer, a single failure is more than is allowed."""
    return FEWEST_FOR_NO_ERRORS if allowed <= 0 else max(10, math.ceil(1 / allowed - 1e-9))


def _most_telling(levels: Sequence[Level]) -> Level:
    best = max(level.images_per_minute or 0.0 for level in levels)
    near = [level for level in levels if (level.images_per_minute or 0.0) >= NEAR_BEST * best]
    return max(near, key=lambda level: (len(level.rows), level.images_per_minute or 0.0))


def _concurrency(levels: list[Level], targets: Sla, *, is_serial: bool) -> Finding:
    """The most books at once that keep latency and errors. Pages one after another can miss the target, not meet it."""

    def finding(measured: float | None, verdict: TargetVerdict, sentence: str) -> Finding:
        return Finding.on(Target.CONCURRENCY, targets, measured, verdict, sentence)

    tried = [level for level in levels if level.number > 0]
    first = next((level for level in tried if level.missed), None)
    below = [level for level in tried if first is None or level.number < first.number]
    kept = [level.number for level in below if level.verdict is TargetVerdict.MET]
    best = max(kept, default=0.0)
    most = level_text(best, "books at once")
    if best >= targets.concurrent_books and is_serial:
        few = f"{most} stayed within the targets, but page by page: with {counted(int(best), 'prompt')} in flight."
        return finding(best, TargetVerdict.NOT_MEASURED, f"{few} Press again without --serial-pages.")
    if best >= targets.concurrent_books:
        return finding(best, TargetVerdict.MET, f"{most} stayed within the latency and error targets.")
    if first is not None:
        missed = " and ".join(first.missed)
        at = f"At {level_text(first.number, 'books at once')} the target for {missed} was missed"
        rest = f"{best:g} stayed within the targets" if kept else "nothing that was tried stayed within the targets"
        return finding(best, TargetVerdict.MISSED, f"{at}; {rest}.")
    if kept:
        why = f"{most} stayed within the targets, and more were not tried."
        return finding(best, TargetVerdict.NOT_MEASURED, why)
    why = "Latency or errors could not be judged, so nobody knows whether the books kept their targets."
    return finding(None, TargetVerdict.NOT_MEASURED, why)
