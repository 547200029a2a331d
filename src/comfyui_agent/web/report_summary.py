"""What a report of the lab found, in one line, from its first part alone: it may be large, cut off or not ours."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from comfyui_agent.domain.texts import counted, printable, whole
from comfyui_agent.lab.quantities import short_seconds
from comfyui_agent.lab.reports.chaos import ChaosReport
from comfyui_agent.lab.reports.environment import ReportKind
from comfyui_agent.lab.reports.load import LoadReport
from comfyui_agent.lab.reports.profile import ProfileReport
from comfyui_agent.lab.reports.reading import read_head
from comfyui_agent.lab.reports.sla import TargetVerdict, standing, verdicts_in

LONGEST = 240
TITLE = re.compile(r"<title>([^<]*)</title>", re.IGNORECASE)
NO_SUMMARY = "It has no summary."


@dataclass(frozen=True)
class ReportLine:
    """One line, whether someone should look at it, and when the work began, in seconds since 1970, if known."""

    text: str
    needs_attention: bool = False
    began: float | None = None


def line_of_document(kind: ReportKind, text: str) -> ReportLine:
    """What the beginning of a JSON report says. A file that is no such report is a line, too."""
    readers = {ReportKind.LOAD: _load, ReportKind.CHAOS: _chaos, ReportKind.PROFILE: _profile}
    try:
        return readers[kind](read_head(text))
    except ValidationError:
        return ReportLine(NO_SUMMARY, needs_attention=True)


def line_of_page(text: str) -> ReportLine:
    """What the beginning of a page says: its title states the finding."""
    title = TITLE.search(text)
    return _line(html.unescape(title.group(1)) if title else "")


def _line(text: str, needs_attention: bool = False, began: float | None = None) -> ReportLine:
    return ReportLine(printable(whole(" ".join(text.split()), LONGEST)), needs_attention, began)


def _load(head: Mapping[str, Any]) -> ReportLine:
    report = LoadReport.model_validate({**head, "results": []})
    summary, began = report.summary, report.environment.began
    if "completed" not in summary.model_fields_set:
        return ReportLine(NO_SUMMARY, True, began)
    counts = {"failed": summary.failed, "timed out": summary.timeouts, "from the cache": summary.cached_jobs}
    text = f"{summary.completed:,} of {summary.total_jobs:,} completed"
    text += "".join(f", {count:,} {what}" for what, count in counts.items() if count)
    p95, rate, books = summary.p95_duration_sec, summary.images_per_minute, summary.concurrent_books
    text += f"; p95 {short_seconds(p95)}" if p95 is not None else ""
    text += f", {rate:.1f} images/min" if rate else ""
    text += f"; {summary.knee.reason}" if summary.knee is not None else ""
    text += f"; {counted(round(books), 'book')} at once within the targets" if books is not None else ""
    verdicts = verdicts_in(summary)
    targets = standing(verdicts)
    text += f"; {targets}" if targets else ""
    scenario = summary.scenario
    text += f"; {scenario.scenario} {scenario.verdict}" if scenario is not None else ""
    text += "; stopped in the middle" if summary.partial else ""
    if scenario is not None:
        return _line(text, scenario.verdict == "failed", began)
    is_missed = TargetVerdict.MISSED in verdicts.values()
    return _line(text, summary.completed < summary.total_jobs or is_missed, began)


def _chaos(head: Mapping[str, Any]) -> ReportLine:
    report = ChaosReport.model_validate(head)
    summary, began = report.summary, report.environment.began
    if "passed" not in summary.model_fields_set:
        return ReportLine(NO_SUMMARY, True, began)
    text = f"{summary.passed} of {summary.total} scenarios passed"
    text += f", {summary.skipped} skipped" if summary.skipped else ""
    recovery = summary.recovery_sec
    text += f", slowest recovery {short_seconds(recovery)}" if recovery is not None else ""
    failed = [each for each in report.results if each.verdict == "failed"]
    text += f"; {failed[0].scenario}: {failed[0].reason}" if failed else ""
    text += "; stopped in the middle" if summary.partial else ""
    return _line(text, bool(summary.failed) or summary.verdict == "failed", began)


def _profile(head: Mapping[str, Any]) -> ReportLine:
    report = ProfileReport.model_validate(head)
    known = {"warm": report.duration_sec, "cold": report.cold_duration_sec}
    times = [f"{short_seconds(value)} {word}" for word, value in known.items() if value is not None]
    text = f"{report.workflow.name or 'A workflow'}: {', '.join(times) or 'nothing was measured'}"
    if report.nodes and report.nodes[0].share:
        node = report.nodes[0]
        text += f"; node {node.node_id} ({node.class_type}) takes {(node.share or 0) * 100:.0f} % of a warm run"
    peak = report.peak_vram_mb
    text += f"; {peak:,.0f} MB video memory at most" if peak else ""
    text += "; stopped in the middle" if report.partial else ""
    return _line(text, not times, report.environment.began)
