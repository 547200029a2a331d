"""The page of a load test."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.pages import gpu_plots, load_plots
from comfyui_agent.lab.pages.chaos_page import stages_of
from comfyui_agent.lab.pages.rendering import LONGEST_TEXT, Mark, render
from comfyui_agent.lab.pages.targets import TargetFigure, target_figures
from comfyui_agent.lab.quantities import date, rate, seconds
from comfyui_agent.lab.reports.environment import Environment
from comfyui_agent.lab.reports.fields import as_number
from comfyui_agent.lab.reports.load import LoadReport, LoadSummary, Row, RowStatus
from comfyui_agent.lab.reports.sla import TargetVerdict, standing

NUMBERS = re.compile(r"[0-9a-fA-F-]{8,}|\d+")
"""Ids, ports and sizes in the text of an error."""
SPANS = ("duration_sec", "queue_sec", "exec_sec", "transfer_sec")
MODES = {"closed": "closed loop", "open": "open loop", "books": "whole books", "scenario": "with a fault"}


def load_page(report: LoadReport, json_name: str = "") -> str:
    """A load test as a page that needs nothing else."""
    summary, environment, rows = report.summary, report.environment, report.results
    latency, throughput, recovery = (
        as_number(environment.sla.get(key)) for key in ("p95_seconds", "images_per_minute", "recovery_seconds")
    )
    figures = target_figures(report)
    card = gpu_plots.largest_card(environment.servers)
    workflow = environment.workflow.name or "unnamed workflow"
    return render(
        "load.html",
        kind="Load test, stopped early" if summary.partial else "Load test",
        title=f"{workflow} on {_servers(summary, environment)}",
        stands=_stands(summary, figures),
        subtitle=_subtitle(summary, environment),
        summary=summary,
        figures=figures,
        unit=load_plots.unit_of(summary.levels),
        latency=load_plots.latency_plot(rows, summary, latency),
        distribution=load_plots.distribution_plot(rows, summary, latency),
        throughput=load_plots.throughput_plot(summary.levels, summary.knee, throughput),
        level_latency=load_plots.level_latency_plot(summary.levels, summary.knee, latency),
        parts=load_plots.parts_plot(rows, summary.levels),
        memory=gpu_plots.memory_plot(environment.gpu_trace, card),
        utilisation=gpu_plots.utilisation_plot(environment.gpu_trace),
        spans=[key for key in SPANS if getattr(summary, f"avg_{key}") is not None],
        errors=group_errors(rows),
        stages=stages_of(summary.scenario, recovery) if summary.scenario else None,
        environment=environment,
        json_name=json_name,
    )


def _stands(summary: LoadSummary, figures: Sequence[TargetFigure]) -> Mark:
    if not summary.total_jobs:
        return Mark("dim", "Nothing was measured.")
    text = f"{summary.completed:,} of {counted(summary.total_jobs, 'job')} done"
    text += f", {summary.failed:,} failed" if summary.failed else ""
    text += f", {summary.timeouts:,} timed out" if summary.timeouts else ""
    text += f", {_throughput(summary)}"
    verdicts = {each.target: each.finding.verdict for each in figures if each.finding is not None}
    targets = standing(verdicts)
    text += f": {targets}." if targets else "."
    is_good = summary.completed == summary.total_jobs and not summary.partial
    is_good = is_good and TargetVerdict.MISSED not in verdicts.values()
    return Mark("good" if is_good else "bad", f"{'Stopped early: ' if summary.partial else ''}{text}")


def _throughput(summary: LoadSummary) -> str:
    """Images a minute; of a ramp those of its best level."""
    if len(summary.levels) > 1:
        return f"at up to {rate(max(level.images_per_minute or 0.0 for level in summary.levels))}"
    return f"at {rate(summary.images_per_minute)}"


def _servers(summary: LoadSummary, environment: Environment) -> str:
    names = [row.server for row in summary.servers] or [row.server or "" for row in environment.servers]
    return (names[0] or "one server") if len(names) == 1 else counted(len(names), "server") if names else "a server"


def _subtitle(summary: LoadSummary, environment: Environment) -> str:
    mode = MODES.get(summary.mode, summary.mode) or "mode unknown"
    return f"Started {date(environment.started_at)}, ran {seconds(summary.wall_clock_sec)}, {mode}."


@dataclass
class ErrorGroup:
    """Errors that differ only in numbers and ids, with the first of them in full."""

    status: RowStatus
    reason: str
    first: int
    count: int = 0


def group_errors(rows: Sequence[Row]) -> list[ErrorGroup]:
    """The most frequent first."""
    groups: dict[tuple[RowStatus, str], ErrorGroup] = {}
    for row in rows:
        if not row.is_completed:
            reason = (row.error or "").strip()[:LONGEST_TEXT] or "no reason was given"
            same = (row.status, NUMBERS.sub("#", reason))
            groups.setdefault(same, ErrorGroup(row.status, reason, row.index)).count += 1
    return sorted(groups.values(), key=lambda group: -group.count)
