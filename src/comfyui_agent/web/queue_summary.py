"""The state of the whole queue in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from comfyui_agent.domain.pace import duration_of
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store.overview import KEPT_COUNTED, Overview


def queue_sentence(found: Overview, reports: Sequence[ServerReport], agents: int) -> str:
    """How much is done, what needs attention, and how long the rest takes."""
    counts = found.counts
    if not counts.total:
        return "Nothing is queued yet."
    needy = f", {attention(counts.attention)}" if counts.attention else ""
    return f"{counts.done:,} of {counts.total:,} done{needy}{_outlook(found, reports, agents)}."


def _outlook(found: Overview, reports: Sequence[ServerReport], agents: int) -> str:
    kept = f", {found.kept:,}{' or more' if found.kept == KEPT_COUNTED else ''} paused" if found.kept else ""
    left = max(0, found.counts.pending + found.counts.processing - found.kept)
    if not left:
        return kept
    if not has_agent(found, agents):
        return f"{kept}, {left:,} wait for an agent"
    working = sum(report.state == "up" for report in reports)
    if reports and not working:
        gone = "; ".join(f"{lost.name} has not answered since {lost.time} UTC" for lost in found.lost)
        return f"{kept}, {left:,} wait for a server{f' ({gone})' if gone else ''}"
    kept += "".join(f", {lost.words}" for lost in found.lost)
    servers = f" on {counted(working, 'server')}" if working else ""
    if not found.per_minute:
        return f"{kept}, {left:,} to come{servers}"
    return f"{kept}, about {duration_of(left / found.per_minute * 60)} left{servers}"


def has_agent(found: Overview, agents: int) -> bool:
    """Whether an agent works: one of this machine, or one elsewhere that holds a lease."""
    return bool(agents) or any((job.lease_expires_at or "") > found.at for job in found.processing)
