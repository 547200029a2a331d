"""A load test in a terminal: its progress, and its summary."""

from __future__ import annotations

import time
from collections import deque

from comfyui_agent.cli.progress import ProgressView, Status
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.files import LoadLog
from comfyui_agent.lab.load.measurement import LevelRun, short_figures
from comfyui_agent.lab.load.plan import LoadPlan, level_text
from comfyui_agent.lab.reports.load import LoadSummary, Row
from comfyui_agent.lab.reports.sla import Target, TargetVerdict, standing, verdicts_in

LINE_SECONDS = 5.0
RECENT = 200
MOST_ERRORS = 3


class LoadView(ProgressView):
    """Is called for every prompt: shows the progress and writes the metrics log."""

    def __init__(self, plan: LoadPlan, log: LoadLog, *, err: bool) -> None:
        super().__init__(lambda: Status(f"  {self._sentence()}", self._share()), err=err)
        self._plan = plan
        self._log = log
        self._sent = self._done = self._failed = 0
        self._jobs: int | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._level_began = self._said_at = time.monotonic()

    def began(self, level: float, jobs: int | None) -> None:
        self._jobs = jobs
        self._sent = self._done = self._failed = 0
        self._recent.clear()
        self._level_began = self._said_at = time.monotonic()
        wanted = f", {counted(jobs, 'prompt')}" if jobs is not None else ""
        wanted += f", for {duration_of(self._plan.duration)}" if self._plan.duration is not None else ""
        self.say(f"{level_text(level, self._plan.mode.unit)}{wanted}")

    def sent(self) -> None:
        self._sent += 1

    def ended(self, row: Row) -> None:
        self._log.ended(row)
        self._done += row.is_completed
        self._failed += not row.is_completed
        if row.duration_sec is not None and row.is_completed:
            self._recent.append(row.duration_sec)
        if not row.is_completed and self._failed <= MOST_ERRORS:
            self.say(f"△ prompt {row.index} {row.status}: {row.error}")
        if not self.is_live and time.monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = time.monotonic()
            self.say(f"  {self._sentence()}")

    def ended_level(self, run: LevelRun) -> None:
        found = short_figures(run.rows, run.wall_clock_sec)
        p95 = found["p95_duration_sec"]
        text = f"{found['completed']} of {found['total_jobs']} completed, {found['images_per_minute']:.1f} images/min"
        text += f", p95 {p95:.2f} s" if p95 is not None else ""
        self.say(f"  {text}")

    def _sentence(self) -> str:
        ended = self._done + self._failed
        text = f"{self._done} of {self._jobs} done" if self._jobs is not None else f"{self._done} done"
        text += f", {self._failed} failed" if self._failed else ""
        text += f", {self._sent - ended} at work"
        seconds = time.monotonic() - self._level_began
        if self._recent and seconds > 0:
            middle = sorted(self._recent)[len(self._recent) // 2]
            text += f", {self._done / seconds * 60:.1f} prompts/min, median {middle:.2f} s"
        if self._jobs and ended and ended < self._jobs:
            text += f", about {duration_of((self._jobs - ended) * seconds / ended)} left"
        return text

    def _share(self) -> float:
        if self._plan.duration is not None:
            return (time.monotonic() - self._level_began) / self._plan.duration
        return (self._done + self._failed) / self._jobs if self._jobs else 0.0


def summary_lines(summary: LoadSummary) -> list[str]:
    """One sentence on the whole, then the figures that people ask for first."""
    lines = [headline(summary)]
    if summary.p50_duration_sec is not None:
        shares = {each: getattr(summary, f"{each}_duration_sec") for each in ("p50", "p90", "p95", "p99")}
        parts = {
            "waiting": summary.p50_queue_sec,
            "rendering": summary.p50_exec_sec,
            "transfer": summary.p50_transfer_sec,
        }
        for name, values in (("latency     ", shares), ("of it       ", parts)):
            known = [f"{part} {value:.2f} s" for part, value in values.items() if value is not None]
            lines.append(f"  {name}{', '.join(known)}")
    lines.append(f"  throughput  {summary.images_per_minute or 0.0:.1f} images/min")
    if len(summary.levels) > 1:
        lines.append(f"  knee        {_knee(summary)}")
    if summary.concurrent_books is not None:
        lines.append(f"  books       {summary.concurrent_books} at once within the targets")
    targets = standing(verdicts_in(summary))
    if targets:
        lines.append(f"  targets     {targets}")
    if len(summary.servers) > 1:
        lines += [
            f"  {each.server}: {each.completed} completed, {each.images_per_minute:.1f} images/min"
            for each in summary.servers
        ]
    return lines


def _knee(summary: LoadSummary) -> str:
    if summary.knee is not None:
        return summary.knee.reason
    if verdicts_in(summary).get(Target.ERRORS) is TargetVerdict.MISSED:
        return "none: no level was sound, even the lowest is above the error limit"
    rates = [level.images_per_minute or 0.0 for level in summary.levels]
    is_rising = rates[-1] == max(rates)
    return "none up to the last level: throughput still rose" if is_rising else "none: too few sound levels to tell"


def headline(summary: LoadSummary) -> str:
    """`58 of 60 completed, 2 failed, in 41.3 s.`"""
    parts = {"failed": summary.failed, "timed out": summary.timeouts, "from the cache": summary.cached_jobs}
    text = f"{summary.completed} of {summary.total_jobs} completed"
    text += "".join(f", {count} {what}" for what, count in parts.items() if count)
    text += f", in {summary.wall_clock_sec or 0.0:.1f} s"
    if summary.partial:
        text += f"; stopped in the middle, {counted(summary.unfinished, 'prompt')} taken back"
    return text + "."
