"""The page of a load test."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from comfyui_agent.config.settings import Sla
from comfyui_agent.lab.pages import gpu_plots, load_plots
from comfyui_agent.lab.pages.chaos_page import stages_of
from comfyui_agent.lab.pages.rendering import LONGEST_TEXT, Mark, render
from comfyui_agent.lab.quantities import rate, seconds, share, wanted, whole
from comfyui_agent.lab.reports.fields import as_number
from comfyui_agent.lab.reports.load import LoadReport, Row, RowStatus
from comfyui_agent.lab.reports.sla import Finding, Target, TargetVerdict, standing
from comfyui_agent.lab.sla.load_targets import judge_load
from comfyui_agent.lab.sla.review import judge_recovery

NUMBERS = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""Ids, ports and sizes in the text of an error."""
SPANS = ("duration_sec", "queue_sec", "exec_sec", "transfer_sec")
TONES = {TargetVerdict.MET: "good", TargetVerdict.MISSED: "bad", TargetVerdict.NOT_MEASURED: "dim"}


def load_page(report: LoadReport, json_name: str = "") -> str:
    summary, environment, rows = report.summary, report.environment, report.results
    latency, throughput, recovery = (
        as_number(environment.sla.get(key)) for key in ("p95_seconds", "images_per_minute", "recovery_seconds")
    )
    figures = _target_figures(report)
    return render(
        "load.html",
        summary=summary,
        figures=figures,
        standing=standing({each.target: each.finding.verdict for each in figures if each.finding is not None}),
        unit=load_plots.unit_of(summary.levels),
        latency=load_plots.latency_plot(rows, summary, latency),
        distribution=load_plots.distribution_plot(rows, summary, latency),
        throughput=load_plots.throughput_plot(summary.levels, summary.knee, throughput),
        level_latency=load_plots.level_latency_plot(summary.levels, summary.knee, latency),
        parts=load_plots.parts_plot(rows, summary.levels),
        memory=gpu_plots.memory_plot(environment.gpu_trace, gpu_plots.largest_card(environment.servers)),
        utilisation=gpu_plots.utilisation_plot(environment.gpu_trace),
        spans=[key for key in SPANS if getattr(summary, f"avg_{key}") is not None],
        errors=_group_errors(rows),
        stages=stages_of(summary.scenario, recovery) if summary.scenario else None,
        environment=environment,
        json_name=json_name,
    )


@dataclass(frozen=True)
class TargetFigure:
    """A figure that a target is about, with the finding on it and what was wanted if there is a target."""

    target: Target
    text: str
    finding: Finding | None = None
    below: Mark | None = None


def _target_figures(report: LoadReport) -> list[TargetFigure]:
    """The figures that a load test has targets for, judged as `e3 sla check` does, without what it did not measure."""
    summary = report.summary
    errors = (summary.failed + summary.timeouts) / summary.total_jobs if summary.total_jobs else None
    figures: dict[Target, tuple[float | None, Callable[[float | None], str]]] = {
        Target.THROUGHPUT: (summary.images_per_minute, rate),
        Target.LATENCY: (summary.p95_duration_sec, seconds),
        Target.ERRORS: (errors, share),
        Target.CONCURRENCY: (summary.concurrent_books, whole),
        Target.RECOVERY: (summary.recovery_sec, seconds),
    }
    findings = {finding.target: finding for finding in _findings(report)}
    found = []
    for target, (value, text) in figures.items():
        finding = findings.get(target)
        if finding is not None:
            measured = text(value if finding.measured is None else finding.measured)
            asked = f"{'≥' if target.is_floor else '≤'} {wanted(text(finding.wanted))}"
            below = f"{finding.verdict}, " + asked.replace(" ", "\N{NO-BREAK SPACE}")
            found.append(TargetFigure(target, measured, finding, Mark(TONES[finding.verdict], below)))
        elif value is not None:
            found.append(TargetFigure(target, text(value)))
    return found


def _findings(report: LoadReport) -> list[Finding]:
    """The findings on the report's own targets; none if it has no targets or no jobs."""
    if not report.environment.sla or not report.results:
        return []
    targets = Sla.model_validate(report.environment.sla)
    recovery = judge_recovery(report, targets)
    return [*judge_load(report, targets), *([recovery] if recovery else [])]


def _group_errors(rows: Sequence[Row]) -> list[list[Row]]:
    """Jobs whose errors differ only in numbers and ids, the most frequent first."""
    groups: dict[tuple[RowStatus, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.is_completed:
            groups[row.status, NUMBERS.sub("#", (row.error or "").strip()[:LONGEST_TEXT])].append(row)
    return sorted(groups.values(), key=len, reverse=True)
