"""How a load test goes: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import typer

from comfyui_agent.cli.output import on_terminal, one_line
from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import counted

if TYPE_CHECKING:
    from rich.text import Text

    from comfyui_agent.lab.load.log import LoadLog
    from comfyui_agent.lab.load.plan import LoadPlan
    from comfyui_agent.lab.load.prompt_runner import Target
    from comfyui_agent.lab.load.rows import Row
    from comfyui_agent.lab.load.summary import LevelRun

LINE_SECONDS = 5.0
BAR = 30
RECENT = 200


class LoadView:
    """Told of every prompt; it shows how it stands and keeps the log."""

    def __init__(self, plan: LoadPlan, log: LoadLog, *, err: bool) -> None:
        self._plan = plan
        self._log = log
        self._err = err
        self._sent = self._done = self._failed = 0
        self._level = 0.0
        self._jobs: int | None = None
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._level_began = self._said_at = time.monotonic()
        self._live: Any = None
        if on_terminal() and not err:
            from rich.console import Console
            from rich.live import Live

            self._console = Console(highlight=False)
            self._live = Live(console=self._console, refresh_per_second=8, transient=True, get_renderable=self._view)

    def __enter__(self) -> LoadView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, words: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._console.print(Text(one_line(words)), soft_wrap=True)
        else:
            with contextlib.suppress(OSError):  # nobody listens any more: the report is what counts
                typer.echo(one_line(words), err=self._err)

    def began(self, level: float, jobs: int | None) -> None:
        from comfyui_agent.lab.load.levels import level_words

        self._level, self._jobs = level, jobs
        self._sent = self._done = self._failed = 0
        self._recent.clear()
        self._level_began = self._said_at = time.monotonic()
        wanted = f", {counted(jobs, 'prompt')}" if jobs is not None else ""
        wanted += f", for {duration_of(self._plan.duration)}" if self._plan.duration is not None else ""
        self.say(f"{level_words(level, self._plan.mode.unit)}{wanted}")

    def sent(self, target: Target) -> None:  # noqa: ARG002 - which server it was is told with the end
        self._sent += 1

    def ended(self, row: Row) -> None:
        self._log.ended(row)
        self._done += row.is_completed
        self._failed += not row.is_completed
        if row.duration_sec is not None and row.is_completed:
            self._recent.append(row.duration_sec)
        if not row.is_completed and self._failed <= 3:
            self.say(f"△ prompt {row.index} {row.status}: {row.error}")
        if self._live is None and time.monotonic() - self._said_at >= LINE_SECONDS:
            self._said_at = time.monotonic()
            self.say(f"  {self._sentence()}")

    def ended_level(self, run: LevelRun) -> None:
        from comfyui_agent.lab.load.summary import short_figures

        found = short_figures(run.rows, run.wall_clock_sec)
        p95 = found["p95_duration_sec"]
        words = f"{found['completed']} of {found['total_jobs']} completed, {found['images_per_minute']:.1f} images/min"
        words += f", p95 {p95:.2f} s" if p95 is not None else ""
        self.say(f"  {words}")

    def _sentence(self) -> str:
        ended = self._done + self._failed
        words = f"{self._done} of {self._jobs} done" if self._jobs is not None else f"{self._done} done"
        words += f", {self._failed} failed" if self._failed else ""
        words += f", {self._sent - ended} at work"
        seconds = time.monotonic() - self._level_began
        if self._recent and seconds > 0:
            middle = sorted(self._recent)[len(self._recent) // 2]
            words += f", {self._done / seconds * 60:.1f} prompts/min, median {middle:.2f} s"
        if self._jobs and ended and ended < self._jobs:
            words += f", about {duration_of((self._jobs - ended) * seconds / ended)} left"
        return words

    def _view(self) -> Text:
        from rich.text import Text

        share = self._share()
        filled = round(BAR * min(1.0, share))
        return Text("━" * filled, "cyan") + Text("─" * (BAR - filled), "dim") + Text(f"  {self._sentence()}")

    def _share(self) -> float:
        if self._plan.duration is not None:
            return (time.monotonic() - self._level_began) / self._plan.duration
        return (self._done + self._failed) / self._jobs if self._jobs else 0.0
