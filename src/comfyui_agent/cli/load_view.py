"""The progress of a load test."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from comfyui_agent.cli.progress import ProgressView, Status
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.plan import level_text
from comfyui_agent.lab.load.summary import short_figures

if TYPE_CHECKING:
    from comfyui_agent.lab.load.log import LoadLog
    from comfyui_agent.lab.load.measurement import LevelRun
    from comfyui_agent.lab.load.plan import LoadPlan
    from comfyui_agent.lab.load.prompt_runner import Target
    from comfyui_agent.lab.reports.load import Row

LINE_SECONDS = 5.0
RECENT = 200
MOST_ERRORS = 3


class LoadView:
    """Is called for every prompt: shows the progress and writes the metrics log."""

    def __init__(self, plan: LoadPlan, log: LoadLog, *, err: bool) -> None:
        self._plan = plan
        self._log = log
        self._sent = self._done = self._failed = 0
        self._jobs: int | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._level_began = self._said_at = time.monotonic()
        self._progress = ProgressView(lambda: Status(f"  {self._sentence()}", self._share()), err=err)
        self.say = self._progress.say

    def __enter__(self) -> LoadView:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__()

    def began(self, level: float, jobs: int | None) -> None:
        self._jobs = jobs
        self._sent = self._done = self._failed = 0
        self._recent.clear()
        self._level_began = self._said_at = time.monotonic()
        wanted = f", {counted(jobs, 'prompt')}" if jobs is not None else ""
        wanted += f", for {duration_of(self._plan.duration)}" if self._plan.duration is not None else ""
        self.say(f"{level_text(level, self._plan.mode.unit)}{wanted}")

    def sent(self, target: Target) -> None:  # noqa: ARG002 - the row of the end names the server
        self._sent += 1

    def ended(self, row: Row) -> None:
        self._log.ended(row)
        self._done += row.is_completed
        self._failed += not row.is_completed
        if row.duration_sec is not None and row.is_completed:
            self._recent.append(row.duration_sec)
        if not row.is_completed and self._failed <= MOST_ERRORS:
            self.say(f"△ prompt {row.index} {row.status}: {row.error}")
        if not self._progress.is_live and time.monotonic() - self._said_at >= LINE_SECONDS:
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
