"""From what a load test has measured to its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.knee import Step, find_knee
from comfyui_agent.lab.load.measurement import LoadRun, figures, short_figures
from comfyui_agent.lab.load.plan import Mode, plain_level
from comfyui_agent.lab.measurement.machine import this_machine
from comfyui_agent.lab.measurement.moments import RunClock
from comfyui_agent.lab.reports.environment import Environment, WorkflowFacts
from comfyui_agent.lab.reports.kinds import ReportKind
from comfyui_agent.lab.reports.load import LevelSummary, LoadReport, LoadSummary, Row, ServerSummary
from comfyui_agent.lab.reports.sla import Target, TargetVerdict
from comfyui_agent.lab.sla.load_targets import judge_levels, judge_load

WITHIN = {TargetVerdict.MET: True, TargetVerdict.MISSED: False, TargetVerdict.NOT_MEASURED: None}


def build_report(run: LoadRun, sla: Sla) -> LoadReport:
    """Everything that was measured, what it was measured with, and the verdict on each target."""
    rows, facts, trace = run.rows, run.facts, run.trace
    workflows = [payload.facts for payload in run.plan.payloads]
    environment = environment_of(
        ReportKind.LOAD,
        run.clock,
        sla,
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


def environment_of(kind: ReportKind, clock: RunClock, sla: Sla, **facts: Any) -> Environment:
    """This machine and the time of a run, with the facts of the run."""
    known = {"kind": kind, "e3": __version__, "machine": this_machine(), "sla": sla.model_dump()}
    times = {"started_at": clock.at(0.0), "ended_at": clock.at(clock.seconds)}
    return Environment.model_validate(known | times | facts)


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
