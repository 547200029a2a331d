"""The report of a load test: `summary`, `results`, `environment`."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from comfyui_agent.domain.texts import TextEnum
from comfyui_agent.lab.reports.chaos import ScenarioResult
from comfyui_agent.lab.reports.environment import Environment, ReportKind
from comfyui_agent.lab.reports.fields import Count, Facts, Flag, Number, OptionalText, Part, Seconds, Text, as_moment


class RowStatus(TextEnum):
    """How a prompt ended. Every row counts under exactly one of them."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMEOUT = "timeout"


class Row(Part):
    """One prompt, from the post to its result. Times are seconds; what was not measured is None."""

    index: Count = 0
    prompt_id: Text = ""
    status: RowStatus = RowStatus.FAILED
    duration_sec: Seconds = None
    queue_sec: Seconds = None
    exec_sec: Seconds = None
    transfer_sec: Seconds = None
    cached: Flag = False
    error: OptionalText = None
    failure_class: OptionalText = None
    server: Text = ""
    workflow: Text = ""
    level: Number = 0.0
    started_at: Text = ""
    ended_at: Text = ""
    seconds: Number = None
    """When it was sent, since the run began."""
    images: Count = 1
    bytes: Count = 0

    @property
    def is_completed(self) -> bool:
        return self.status is RowStatus.COMPLETED

    @property
    def sent_seconds(self) -> float:
        return self.seconds or 0.0

    @property
    def ended_seconds(self) -> float:
        return self.sent_seconds + (self.duration_sec or 0.0)

    def sent_after(self, began: float | None) -> Row:
        """The row with `seconds`, from the times of day where they were not written."""
        if self.seconds is not None or began is None:
            return self
        started, ended = as_moment(self.started_at), as_moment(self.ended_at)
        if started is None and ended is not None:
            started = ended - (self.duration_sec or 0.0)
        return self if started is None else self.model_copy(update={"seconds": started - began})


class _LevelName(Part):
    level: Number = 0
    unit: Text = ""


class _ServerName(Part):
    server: Text = ""


class Figures(Part):
    """What a line of a table shows. Durations are those of completed prompts."""

    total_jobs: Count = 0
    completed: Count = 0
    failed: Count = 0
    timeouts: Count = 0
    images_per_minute: Number = 0.0
    success_rate: Number = 0.0
    p50_duration_sec: Number = None
    p95_duration_sec: Number = None
    cached_jobs: Count = 0
    wall_clock_sec: Number = None


class LevelSummary(Figures, _LevelName):
    """One level. `within_sla` says whether it kept latency and errors, None if too few jobs ended to tell."""

    within_sla: bool | None = None
    partial: Flag = False


class ServerSummary(Figures, _ServerName):
    """What one server contributed."""


class KneeFacts(Part):
    """The level up to which more load pays."""

    level: Number = None
    images_per_minute: Number = None
    unit: Text = ""
    reason: Text = ""


class LoadSummary(Part):
    total_jobs: Count
    completed: Count = 0
    failed: Count = 0
    timeouts: Count = 0
    avg_duration_sec: Number = None
    p50_duration_sec: Number = None
    p90_duration_sec: Number = None
    p95_duration_sec: Number = None
    p99_duration_sec: Number = None
    max_duration_sec: Number = None
    images: Count = 0
    images_per_minute: Number = None
    success_rate: Number = None
    cached_jobs: Count = 0
    wall_clock_sec: Number = None
    avg_queue_sec: Number = None
    p50_queue_sec: Number = None
    p90_queue_sec: Number = None
    p95_queue_sec: Number = None
    p99_queue_sec: Number = None
    avg_exec_sec: Number = None
    p50_exec_sec: Number = None
    p90_exec_sec: Number = None
    p95_exec_sec: Number = None
    p99_exec_sec: Number = None
    avg_transfer_sec: Number = None
    p50_transfer_sec: Number = None
    p90_transfer_sec: Number = None
    p95_transfer_sec: Number = None
    p99_transfer_sec: Number = None
    mode: Text = ""
    partial: Flag = False
    unfinished: Count = 0
    warnings: list[Text] = Field(default_factory=list)
    levels: list[LevelSummary] = Field(default_factory=list)
    knee: KneeFacts | None = None
    servers: list[ServerSummary] = Field(default_factory=list)
    peak_gpu_mem_mb: Number = None
    avg_gpu_util: Number = None
    scenario: ScenarioResult | None = None
    recovery_sec: Number = None
    targets: Facts = Field(default_factory=dict)
    concurrent_books: Number = None


class LoadReport(Part):
    kind: ClassVar[ReportKind] = ReportKind.LOAD

    path: Path = Field(default=Path("load.json"), exclude=True)
    summary: LoadSummary
    results: list[Row] = Field(default_factory=list)
    environment: Environment = Field(default_factory=Environment)

    @property
    def is_partial(self) -> bool:
        """Whether the run was stopped before its end."""
        return self.summary.partial or self.summary.unfinished > 0

    @property
    def has_times(self) -> bool:
        """Whether the rows say when they were sent."""
        return all(row.seconds is not None or row.started_at or row.ended_at for row in self.results)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The prompts in the order in which they ended."""
        rows = [row.sent_after(self.environment.began) for row in self.results]
        return tuple(sorted(rows, key=lambda row: (row.ended_seconds, row.index)))

    @property
    def levels(self) -> list[tuple[LevelSummary, list[Row]]]:
        """The levels that have rows, with their rows, from the lowest."""
        found = []
        for level in sorted(self.summary.levels, key=lambda each: each.level or 0.0):
            rows = [row for row in self.rows if math.isclose(row.level or 0.0, level.level or 0.0, rel_tol=1e-5)]
            found += [(level, rows)] if rows else []
        return found

    @property
    def wall_clock_sec(self) -> float:
        """As the report says, else from its rows."""
        written = self.summary.wall_clock_sec
        if written is not None and written > 0:
            return written
        return max((row.ended_seconds for row in self.rows), default=0.0)
