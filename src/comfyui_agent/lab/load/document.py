"""From what a load test has measured to its report, with the knee: where more load brings no more pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.measurement import LoadRun, figures, short_figures
from comfyui_agent.lab.load.plan import Mode, level_text, plain_level
from comfyui_agent.lab.measurement.machine import environment_of
from comfyui_agent.lab.reports.environment import ReportKind, WorkflowFacts
from comfyui_agent.lab.reports.load import KneeFacts, LevelSummary, LoadReport, LoadSummary, Row, ServerSummary
from comfyui_agent.lab.reports.sla import Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import judge_levels, judge_load

NEAR = 0.95
"""A level counts as flat when it brings this share of the best throughput seen, or is not surely below it."""
SURE = 2.5
"""Standard errors by which two levels must differ."""
WITHIN = {TargetVerdict.MET: True, TargetVerdict.MISSED: False, TargetVerdict.NOT_MEASURED: None}


def build_report(run: LoadRun, sla: Sla) -> LoadReport:
    """Everything that was measured, what it was measured with, and the verdict on each target."""
    rows, facts, trace = run.rows, run.facts, run.trace
    workflows = [payload.facts for payload in run.plan.payloads]
    environment = environment_of(
        ReportKind.LOAD,
        run.clock,
        sla=sla.model_dump(),
        ended_at=run.clock.at(max((row.ended_seconds for row in rows), default=run.clock.seconds)),
        servers=facts,
        workflow=workflows[0] if len(workflows) == 1 else _together(workflows),
        workflows=workflows,
        parameters={"servers": [each.server for each in facts], **run.plan.as_json()},
        warmup_sec=[round(seconds, 6) for seconds in run.warmup_seconds],
        gpu_source=trace.source,
        gpu_trace=trace.samples,
    )
    report = LoadReport(summary=_summary(run, sla), results=rows, environment=environment)
    if rows:
        _judge(report, sla)
    return report


def _judge(report: LoadReport, sla: Sla) -> None:
    """As `e3 sla check` does, so that the summary, its levels and the page agree with it."""
    summary = report.summary
    findings = {finding.target: finding for finding in judge_load(report, sla)}
    levels = judge_levels(report, sla)
    for level in summary.levels:
        level.within_sla = WITHIN[levels.get(float(level.level or 0.0), TargetVerdict.NOT_MEASURED)]
    summary.targets = {str(target): str(finding.verdict) for target, finding in findings.items()}
    books = findings.get(Target.CONCURRENCY)
    if books is not None and books.measured is not None:
        summary.concurrent_books = int(books.measured)


def _summary(run: LoadRun, sla: Sla) -> LoadSummary:
    unit, rows = run.plan.mode.unit, run.rows
    wall = sum(level.wall_clock_sec for level in run.levels)
    levels, steps = [], []
    for level in run.levels:
        short = short_figures(level.rows, level.wall_clock_sec)
        shown = plain_level(level.level)
        levels.append(LevelSummary(level=shown, unit=unit, **short, within_sla=None, partial=not level.is_whole))
        if level.is_whole and (level.is_reached or run.plan.mode is not Mode.CLOSED):
            steps.append(Step(level.level, short["images_per_minute"], short["success_rate"], level.noise))
    servers = {name: [row for row in rows if row.server == name] for name in sorted({row.server for row in rows})}
    memory = [sample.gpu_mem_mb for sample in run.trace.samples if sample.gpu_mem_mb is not None]
    busy = [sample.gpu_util for sample in run.trace.samples if sample.gpu_util is not None]
    return LoadSummary(
        **figures(rows, wall),
        mode=str(run.plan.mode),
        partial=run.is_partial,
        unfinished=run.unfinished,
        warnings=[*run.warnings, *_cache_warnings(rows)],
        levels=levels,
        knee=find_knee(steps, sla.error_rate, unit),
        servers=[ServerSummary(server=name, **short_figures(own, wall)) for name, own in servers.items()],
        peak_gpu_mem_mb=max(memory, default=None),
        avg_gpu_util=round(sum(busy) / len(busy), 1) if busy else None,
    )


@dataclass(frozen=True)
class Step:
    """One level of a ramp. `noise` is the standard error of the throughput, as a share of it."""

    level: float
    images_per_minute: float
    success_rate: float
    noise: float = 0.0

    def is_below(self, best: Step) -> bool:
        """Whether it brings clearly less: by more than a twentieth, and by more than chance."""
        chance = SURE * math.hypot(self.noise * self.images_per_minute, best.noise * best.images_per_minute)
        return self.images_per_minute < best.images_per_minute - max((1 - NEAR) * best.images_per_minute, chance)


def find_knee(steps: Sequence[Step], most_errors: float, unit: str) -> KneeFacts | None:
    """The lowest level that brings nearly all there is, or the last one before errors rise above `most_errors`. None if
    throughput still rose at the last level."""
    sound = list(takewhile(lambda step: 1.0 - step.success_rate <= most_errors + 1e-9, steps))
    best = max(sound, key=lambda step: step.images_per_minute, default=None)
    if len(steps) < 2 or best is None or best.images_per_minute <= 0:
        return None
    flat = next(step for step in sound if not step.is_below(best))
    if flat is not sound[-1]:
        more = 100 * (best.images_per_minute / flat.images_per_minute - 1)
        gain = f"higher levels bring at most {more:.1f} % more" if more > 0 else "higher levels bring no more"
        reason = f"throughput flattens at {level_text(flat.level, unit)}: {gain}"
    elif len(sound) < len(steps):
        broken = steps[len(sound)]
        share = f"at {broken.level:g}, {100 * (1 - broken.success_rate):.0f} % fail"
        reason = f"errors rise after {level_text(flat.level, unit)}: {share}"
    else:
        return None
    return KneeFacts(level=flat.level, images_per_minute=flat.images_per_minute, unit=unit, reason=reason)


def _cache_warnings(rows: Sequence[Row]) -> list[str]:
    cached = sum(row.cached for row in rows if row.is_completed)
    if not cached:
        return []
    was = "was" if cached == 1 else "were"
    return [f"{cached} of {counted(len(rows), 'prompt')} {was} answered from the server's cache and measured nothing"]


def _together(workflows: Sequence[WorkflowFacts]) -> WorkflowFacts:
    return WorkflowFacts(
        name=" + ".join(each.name or "" for each in workflows),
        sha256=" + ".join(each.sha256 or "" for each in workflows),
        nodes=sum(each.nodes for each in workflows),
    )
