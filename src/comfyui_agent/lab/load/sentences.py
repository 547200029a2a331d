"""The summary of a load test in words."""

from __future__ import annotations

from comfyui_agent.domain.texts import counted
from comfyui_agent.lab.reports.load import LoadSummary
from comfyui_agent.lab.reports.sla import Target, TargetVerdict, standing, verdicts_in


def summary_lines(summary: LoadSummary) -> list[str]:
    """One sentence on the whole, then the figures that people ask for first."""
    lines = [headline(summary)]
    durations = {each: getattr(summary, f"{each}_duration_sec") for each in ("p50", "p90", "p95", "p99")}
    if summary.p50_duration_sec is not None:
        lines.append("  latency     " + ", ".join(f"{each} {value:.2f} s" for each, value in durations.items()))
        parts = {
            "waiting": summary.p50_queue_sec,
            "rendering": summary.p50_exec_sec,
            "transfer": summary.p50_transfer_sec,
        }
        known = [f"{part} {value:.2f} s" for part, value in parts.items() if value is not None]
        lines.append("  of it       " + ", ".join(known))
    lines.append(f"  throughput  {summary.images_per_minute or 0.0:.1f} images/min")
    if len(summary.levels) > 1:
        lines.append(f"  knee        {_knee(summary)}")
    if summary.concurrent_books is not None:
        lines.append(f"  books       {summary.concurrent_books} at once within the targets")
    targets = standing(verdicts_in(summary))
    if targets:
        lines.append(f"  targets     {targets}")
    if len(summary.servers) > 1:
        lines += [
            f"  {each.server}: {each.completed} completed, {each.images_per_minute:.1f} images/min"
            for each in summary.servers
        ]
    return lines


def _knee(summary: LoadSummary) -> str:
    if summary.knee is not None:
        return summary.knee.reason
    if verdicts_in(summary).get(Target.ERRORS) is TargetVerdict.MISSED:
        return "none: no level was sound, even the lowest is above the error limit"
    rates = [level.images_per_minute or 0.0 for level in summary.levels]
    is_rising = rates[-1] == max(rates)
    return "none up to the last level: throughput still rose" if is_rising else "none: too few sound levels to tell"


def headline(summary: LoadSummary) -> str:
    """`58 of 60 completed, 2 failed, in 41.3 s.`"""
    parts = {"failed": summary.failed, "timed out": summary.timeouts, "from the cache": summary.cached_jobs}
    text = f"{summary.completed} of {summary.total_jobs} completed"
    text += "".join(f", {count} {what}" for what, count in parts.items() if count)
    text += f", in {summary.wall_clock_sec or 0.0:.1f} s"
    if summary.partial:
        text += f"; stopped in the middle, {counted(summary.unfinished, 'prompt')} taken back"
    return text + "."
