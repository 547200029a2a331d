"""The report of a load test: `summary`, `results`, `environment`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comfyui_agent import __version__
from comfyui_agent.config.settings import Sla
from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.load.knee import Step, find_knee
from comfyui_agent.lab.load.measurement import LoadRun
from comfyui_agent.lab.load.plan import Mode
from comfyui_agent.lab.load.reports import Report, ReportKind
from comfyui_agent.lab.load.rows import Row
from comfyui_agent.lab.load.summary import LevelRun, figures, short_figures
from comfyui_agent.lab.measurement.machine import this_machine
from comfyui_agent.lab.sla.load_targets import judge_levels, judge_load
from comfyui_agent.lab.sla.verdicts import Target, TargetVerdict

WITHIN = {TargetVerdict.MET: True, TargetVerdict.MISSED: False, TargetVerdict.NOT_MEASURED: None}


def build_report(run: LoadRun, sla: Sla) -> dict[str, Any]:
    """Everything that was measured, what it was measured with, and how it stands to the targets."""
    report = {
        "summary": _summary(run, sla),
        "results": [row.as_json() for row in run.rows],
        "environment": _environment(run, sla),
    }
    if run.rows:
        _judge(report, sla)
    return report


def _judge(report: dict[str, Any], sla: Sla) -> None:
    """As `e3 sla check` does: the summary, its levels, and all that is told of them say the same."""
    summary = report["summary"]
    read = Report(Path(), ReportKind.LOADTEST, summary, report["results"], report["environment"])
    findings = {finding.target: finding for finding in judge_load(read, sla)}
    levels = judge_levels(read, sla)
    for level in summary["levels"]:
        level["within_sla"] = WITHIN[levels.get(level["level"], TargetVerdict.NOT_MEASURED)]
    summary["targets"] = {str(target): str(finding.verdict) for target, finding in findings.items()}
    books = findings.get(Target.CONCURRENCY)
    if books is not None and books.measured is not None:
        summary["concurrent_books"] = int(books.measured)


def _summary(run: LoadRun, sla: Sla) -> dict[str, Any]:
    rows, unit = run.rows, run.plan.mode.unit
    wall = sum(level.wall_clock_sec for level in run.levels)
    tried = [level for level in run.levels if level.is_whole and (level.is_reached or run.plan.mode is not Mode.CLOSED)]
    steps = [_step(level) for level in tried]
    knee = find_knee(steps, sla.error_rate, unit)
    memory = [sample.gpu_mem_mb for sample in run.trace.samples if sample.gpu_mem_mb is not None]
    busy = [sample.gpu_util for sample in run.trace.samples if sample.gpu_util is not None]
    return figures(rows, wall) | {
        "mode": str(run.plan.mode),
        "partial": run.is_partial,
        "unfinished": run.unfinished,
        "warnings": [*run.warnings, *_cache_warnings(rows)],
        "levels": [_level(level, unit) for level in run.levels],
        "knee": None if knee is None else knee.as_json(unit),
        "servers": _servers(run.levels, wall),
        "peak_gpu_mem_mb": max(memory, default=None),
        "avg_gpu_util": round(sum(busy) / len(busy), 1) if busy else None,
    }


def _step(run: LevelRun) -> Step:
    short = short_figures(run.rows, run.wall_clock_sec)
    return Step(run.level, short["images_per_minute"], short["success_rate"], run.noise)


def _level(run: LevelRun, unit: str) -> dict[str, Any]:
    short = short_figures(run.rows, run.wall_clock_sec)
    level = int(run.level) if run.level == int(run.level) else run.level
    return {"level": level, "unit": unit, **short, "within_sla": None, "partial": not run.is_whole}


def _servers(levels: Sequence[LevelRun], wall: float) -> list[dict[str, Any]]:
    by_server: dict[str, list[Row]] = {}
    for level in levels:
        for row in level.rows:
            by_server.setdefault(row.server, []).append(row)
    return [{"server": server, **short_figures(rows, wall)} for server, rows in sorted(by_server.items())]


def _cache_warnings(rows: Sequence[Row]) -> list[str]:
    cached = sum(row.cached for row in rows if row.is_completed)
    if not cached:
        return []
    was = "was" if cached == 1 else "were"
    return [f"{cached} of {counted(len(rows), 'prompt')} {was} answered from the server's cache and measured nothing"]


def _environment(run: LoadRun, sla: Sla) -> dict[str, Any]:
    payloads = [payload.as_json() for payload in run.plan.payloads]
    whole = payloads[0] if len(payloads) == 1 else _together(payloads)
    return {
        "kind": "loadtest",
        "e3": __version__,
        "started_at": run.clock.at(0.0),
        "ended_at": run.clock.at(max((row.ended_seconds for row in run.rows), default=run.clock.seconds)),
        "machine": this_machine(),
        "servers": run.facts,
        "workflow": whole,
        "workflows": payloads,
        "parameters": {"servers": [each["server"] for each in run.facts], **run.plan.as_json()},
        "warmup_sec": [round(seconds, 6) for seconds in run.warmup_seconds],
        "sla": sla.model_dump(),
        "gpu_source": run.trace.source,
        "gpu_trace": [sample.as_json() for sample in run.trace.samples],
    }


def _together(payloads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": " + ".join(each["name"] for each in payloads),
        "sha256": " + ".join(each["sha256"] for each in payloads),
        "nodes": sum(each["nodes"] for each in payloads),
    }
