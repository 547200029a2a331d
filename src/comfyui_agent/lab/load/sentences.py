"""The summary of a load test in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.sla.verdicts import Target, TargetVerdict, standing, verdicts_in


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """One sentence on how it went, then the figures that people ask for first."""
    lines = [headline(summary)]
    if summary["p50_duration_sec"] is not None:
        percentiles = ", ".join(
            f"{each} {summary[f'{each}_duration_sec']:.2f} s" for each in ("p50", "p90", "p95", "p99")
        )
        lines.append(f"  latency     {percentiles}")
        parts = {"queue": "waiting", "exec": "rendering", "transfer": "transfer"}
        known = [(word, summary[f"p50_{part}_sec"]) for part, word in parts.items()]
        lines.append(
            "  of it       " + ", ".join(f"{word} {value:.2f} s" for word, value in known if value is not None)
        )
    lines.append(f"  throughput  {summary['images_per_minute']:.1f} images/min")
    if len(summary["levels"]) > 1:
        lines.append(f"  knee        {_knee(summary)}")
    if "concurrent_books" in summary:
        lines.append(f"  books       {summary['concurrent_books']} at once within the targets")
    if told := standing(verdicts_in(summary)):
        lines.append(f"  targets     {told}")
    if len(summary["servers"]) > 1:
        for each in summary["servers"]:
            lines.append(
                f"  {each['server']}: {each['completed']} completed, {each['images_per_minute']:.1f} images/min"
            )
    return lines


def _knee(summary: Mapping[str, Any]) -> str:
    if summary["knee"]:
        return str(summary["knee"]["reason"])
    if verdicts_in(summary).get(Target.ERRORS) is TargetVerdict.MISSED:
        return "none: no level was sound, even the lowest is above the error limit"
    rates = [level["images_per_minute"] for level in summary["levels"]]
    is_rising = rates[-1] == max(rates)
    return "none up to the last level: throughput still rose" if is_rising else "none: too few sound levels to tell"


def headline(summary: Mapping[str, Any]) -> str:
    """`58 of 60 completed, 2 failed, in 41.3 s.`"""
    words = f"{summary['completed']} of {summary['total_jobs']} completed"
    words += f", {summary['failed']} failed" if summary["failed"] else ""
    words += f", {summary['timeouts']} timed out" if summary["timeouts"] else ""
    words += f", {summary['cached_jobs']} from the cache" if summary["cached_jobs"] else ""
    words += f", in {summary['wall_clock_sec']:.1f} s"
    if summary["partial"]:
        words += f"; stopped in the middle, {counted(summary['unfinished'], 'prompt')} taken back"
    return words + "."
