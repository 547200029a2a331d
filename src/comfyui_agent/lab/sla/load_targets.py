"""What a load test says of throughput, latency, errors and books at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.load.sample import Sample, samples_of
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict, overall, quantity

SLACK = 1e-9
NEAR_BEST = 0.95
FEWEST_FOR_P95 = 20
FEWEST_FOR_THROUGHPUT = 10
FEWEST_FOR_NO_ERRORS = 100
"""Prompts without a failure that are taken as proof where not even one failure is allowed."""
SCENARIO, OPEN, BOOKS = "scenario", "open", "books"
PARTIAL = "the run was stopped before its end, which can show a miss but not that a target is met."


def judge_load(report: LoadReport, targets: Sla) -> list[Finding]:
    """The targets that a load test can judge; none if something was broken on purpose meanwhile.

    A ramp presses until something gives way, so it is judged at one level: of those that keep latency and errors and
    come near the highest throughput, the one with the most prompts; if none does, the lowest.
    """
    mode = report.summary.mode
    if mode == SCENARIO:
        return []
    levels = [_Level(sample, targets, is_open=mode == OPEN) for sample in samples_of(report)]
    steady = [level for level in levels if not level.is_breached]
    chosen = _most_telling(steady) if steady else levels[0]
    found = [chosen.throughput(), chosen.latency(), chosen.errors()]
    if mode == BOOKS:
        is_serial = report.environment.parameters.get("parallel_pages") is not True
        found.append(_concurrency(levels, targets, is_serial=is_serial))
    return found


def judge_levels(report: LoadReport, targets: Sla) -> dict[float, TargetVerdict]:
    """Whether each level kept latency and errors; levels without a job are left out."""
    levels = [_Level(sample, targets) for sample in samples_of(report)]
    return {level.sample.level: level.verdict for level in levels if level.sample.rows}


def jobs_for_errors(allowed: float) -> int:
    """How many prompts it takes to see a rate of errors: with fewer, a single failure is more than is allowed."""
    return FEWEST_FOR_NO_ERRORS if allowed <= 0 else max(10, math.ceil(1 / allowed - 1e-9))


def _most_telling(levels: Sequence[_Level]) -> _Level:
    best = max(level.sample.images_per_minute or 0.0 for level in levels)
    near = [level for level in levels if (level.sample.images_per_minute or 0.0) >= NEAR_BEST * best]
    return max(near, key=lambda level: (len(level.sample.rows), level.sample.images_per_minute or 0.0))


@dataclass(frozen=True)
class _Level:
    """One level, judged by the targets."""

    sample: Sample
    targets: Sla
    is_open: bool = False

    @property
    def is_breached(self) -> bool:
        return TargetVerdict.MISSED in (self.latency().verdict, self.errors().verdict)

    @property
    def verdict(self) -> TargetVerdict:
        return overall((self.latency(), self.errors()))

    def throughput(self) -> Finding:
        sample, wanted = self.sample, self.targets.images_per_minute
        measured = sample.images_per_minute
        if measured is None:
            return self._not_measured(Target.THROUGHPUT, None, "No job ran.")
        if not sample.is_mostly_rendered:
            return self._not_measured(Target.THROUGHPUT, None, self._cached())
        seen = f"{counted(sample.images, 'image')} in {sample.wall_clock_sec:.1f} s{self._where}"
        if measured < wanted - SLACK:
            offered = sample.offered_per_minute
            if self.is_open and offered is not None and offered < wanted and not self.is_breached:
                asked = f"{seen}, but only {offered:.3g} images/min were asked for: press harder."
                return self._not_measured(Target.THROUGHPUT, measured, asked)
            if sample.is_partial and self._with_unfinished() >= wanted:
                return self._not_measured(Target.THROUGHPUT, measured, f"{seen}; {PARTIAL}")
            return self._finding(Target.THROUGHPUT, measured, TargetVerdict.MISSED, f"{seen}.")
        if len(sample.rendered) < FEWEST_FOR_THROUGHPUT:
            jobs = counted(len(sample.rendered), "job is", "jobs are")
            few = f"{seen}, but {jobs} too few: run at least {FEWEST_FOR_THROUGHPUT}."
            return self._not_measured(Target.THROUGHPUT, measured, few, FEWEST_FOR_THROUGHPUT)
        return self._met(Target.THROUGHPUT, measured, seen)

    def latency(self) -> Finding:
        sample, wanted = self.sample, self.targets.p95_seconds
        measured = sample.p95
        if measured is None:
            return self._not_measured(Target.LATENCY, None, f"No job was completed{self._where}.")
        if not sample.is_mostly_rendered:
            return self._not_measured(Target.LATENCY, None, self._cached())
        count = len(sample.latencies)
        within = quantity(measured, Target.LATENCY, wanted)
        seen = f"95 of 100 results were there within {within}, of {counted(count, 'job')}"
        if sample.timeouts:
            seen += f", {len(sample.timeouts)} of them given up and counted with the time they were waited for"
        seen += self._where
        if measured > wanted + SLACK:
            return self._finding(Target.LATENCY, measured, TargetVerdict.MISSED, f"{seen}.")
        if count < FEWEST_FOR_P95:
            few = f"The slowest of {counted(count, 'job')} took {max(sample.latencies):.3g} s{self._where}, but "
            few += f"{counted(count, 'job is', 'jobs are')} too few: run at least {FEWEST_FOR_P95}."
            return self._not_measured(Target.LATENCY, measured, few, FEWEST_FOR_P95)
        return self._met(Target.LATENCY, measured, seen)

    def errors(self) -> Finding:
        sample, wanted = self.sample, self.targets.error_rate
        measured = sample.error_rate
        if measured is None:
            return self._not_measured(Target.ERRORS, None, f"No job was rendered{self._where}.")
        seen = f"{sample.failed} of {counted(sample.worked_on, 'job')} failed or timed out{self._where}"
        needed = jobs_for_errors(wanted)
        if measured > wanted + SLACK:
            few = f"; so few jobs are a weak proof, run at least {needed}" if sample.worked_on < needed else ""
            return self._finding(Target.ERRORS, measured, TargetVerdict.MISSED, f"{seen}{few}.")
        if sample.worked_on < needed:
            allowed = quantity(wanted, Target.ERRORS)
            few = f"{seen}, but it takes at least {needed} jobs to see a rate of {allowed}."
            return self._not_measured(Target.ERRORS, measured, few, needed)
        return self._met(Target.ERRORS, measured, seen)

    @property
    def _where(self) -> str:
        return f" {self.sample.where}" if self.sample.where else ""

    def _cached(self) -> str:
        return (
            f"{self.sample.cached} of {counted(self.sample.completed, 'answer')} came from the server's cache"
            f"{self._where}: they measured nothing. Let the seeds vary."
        )

    def _with_unfinished(self) -> float:
        """What the throughput would be if all that was taken back had been completed at once."""
        sample = self.sample
        each = sample.images / len(sample.rendered) if sample.rendered else 1.0
        return (sample.images + sample.unfinished * each) / sample.wall_clock_sec * 60

    def _met(self, target: Target, measured: float, seen: str) -> Finding:
        if self.sample.is_partial:
            return self._not_measured(target, measured, f"{seen}; {PARTIAL}")
        return self._finding(target, measured, TargetVerdict.MET, f"{seen}.")

    def _not_measured(self, target: Target, measured: float | None, why: str, needed: int | None = None) -> Finding:
        return self._finding(target, measured, TargetVerdict.NOT_MEASURED, why, needed)

    def _finding(
        self, target: Target, measured: float | None, verdict: TargetVerdict, sentence: str, needed: int | None = None
    ) -> Finding:
        return Finding.on(target, self.targets, measured, verdict, sentence, needed)


def _concurrency(levels: list[_Level], targets: Sla, *, is_serial: bool) -> Finding:
    """The most books at once that keep latency and errors, below the first number that did not.

    Books whose pages come one after another can miss the target, but not meet it.
    """

    def finding(measured: float | None, verdict: TargetVerdict, sentence: str) -> Finding:
        return Finding.on(Target.CONCURRENCY, targets, measured, verdict, sentence)

    tried = [level for level in levels if level.sample.level > 0]
    first = next((level for level in tried if level.is_breached), None)
    below = [level for level in tried if first is None or level.sample.level < first.sample.level]
    kept = [level.sample.level for level in below if level.verdict is TargetVerdict.MET]
    best = max(kept, default=0.0)
    most = level_text(best, "books at once")
    if best >= targets.concurrent_books and is_serial:
        few = f"{most} stayed within the targets, but page by page: with {counted(int(best), 'prompt')} in flight."
        return finding(best, TargetVerdict.NOT_MEASURED, f"{few} Press again without --serial-pages.")
    if best >= targets.concurrent_books:
        return finding(best, TargetVerdict.MET, f"{most} stayed within the latency and error targets.")
    if first is not None:
        both = (first.latency(), first.errors())
        missed = " and ".join(each.target.label.lower() for each in both if each.verdict is TargetVerdict.MISSED)
        at = f"At {level_text(first.sample.level, 'books at once')} the target for {missed} was missed"
        rest = f"{best:g} stayed within the targets" if kept else "nothing that was tried stayed within the targets"
        return finding(best, TargetVerdict.MISSED, f"{at}; {rest}.")
    if kept:
        why = f"{most} stayed within the targets, and more were not tried."
        return finding(best, TargetVerdict.NOT_MEASURED, why)
    why = "Latency or errors could not be judged, so nobody knows whether the books kept their targets."
    return finding(None, TargetVerdict.NOT_MEASURED, why)
