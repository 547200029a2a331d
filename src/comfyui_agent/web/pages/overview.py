"""The overview: what renders now or the last work, the newest results, and what needs a person."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Hashable, Sequence
from time import strptime
from typing import Any

from markupsafe import Markup

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.pace import duration_of, outlook, rate_of
from comfyui_agent.domain.texts import attention, counted
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store import operations as ops
from comfyui_agent.store.overview import KEPT_COUNTED, Overview, Work
from comfyui_agent.web.pages.cells import live_by_job
from comfyui_agent.web.screens import Fragment, Screen, View

MOST_RUNNING = 8
MOST_BATCHES = 6
MOST_FOLLOWING = 4


async def build(view: View) -> Screen:
    found = await view.context.store.run(ops.read_overview)
    fleet = view.context.fleet
    reports, agents = await fleet.reports(), await fleet.agents()
    live = await live_by_job(view)
    work = None if found.left else await view.context.store.run(ops.last_work)
    results = work.results if work else found.done
    about = await view.context.cells.of([*found.processing, *results, *found.failed])
    running = {
        "jobs": [job for job in found.processing if not _waits(live.get(job.id))][:MOST_RUNNING],
        "following": [job for job in found.processing if _waits(live.get(job.id))][:MOST_FOLLOWING],
        "live": live,
        "count": found.counts.processing,
        "is_idle": not found.left,
        "about": about,
    }
    notice = {"counts": found.counts, "reports": reports, "has_agent": has_agent(found, agents)}
    batches = [(batch, sentence(batch)) for batch in found.batches[:MOST_BATCHES]]
    needy = {"jobs": found.failed, "counts": found.counts, "about": about}
    shown = {"jobs": results, "counts": found.counts, "work": work, "about": about}
    sla = view.context.workspace.settings.sla
    is_target_set = "images_per_minute" in sla.model_fields_set
    pace = _pace(found, sla.images_per_minute if is_target_set else 0.0)
    rate = "" if running["is_idle"] or not found.done_last_five else rate_of(found.per_minute)
    fragments = (
        Fragment("overview-notice", notice),
        Fragment("overview-counts", {"found": found, "rate": rate}),
        Fragment("overview-running", running),
        Fragment("overview-attention", needy, (_key(found.failed), found.counts.attention)),
        Fragment("overview-batches", {"batches": batches}),
        Fragment("overview-servers", {"reports": reports}),
        Fragment("overview-pace", {"found": found, "pace": pace, "rate": rate}),
        Fragment("overview-results", shown, (_key(results), found.counts.done, work and (work.began, work.troubles))),
    )
    summary = _work_sentence(work, found.kept) if work else ""
    summary = summary or queue_sentence(found, reports, agents, await view.context.forecasts.left())
    return Screen("overview.html", "Overview", summary, fragments, section="overview")


def _work_sentence(work: Work, kept: int) -> Markup:
    """`The last work: 412 pictures in 6 h, 3 need attention.` A script says “Last night” if it was, for the viewer."""
    words = Markup('<span data-began="{}" data-ended="{}">The last work</span>{}')
    return words.format(work.began.isoformat(), work.ended.isoformat(), work_words(work, kept))


def work_words(work: Work, kept: int) -> str:
    """`: 412 pictures in 6 h, 3 need attention.`"""
    took = duration_of((work.ended - work.began).total_seconds())
    made = f"{counted(work.done, 'picture')} in {took}" if work.done else "no picture"
    needy = f", {attention(work.attention)}" if work.attention else ""
    paused = f". {kept:,} paused" if kept else ""
    return f": {made}{needy}{paused}."


def _waits(run: LiveRun | None) -> bool:
    """Whether a job waits at its server. A job of another machine has no live run and is taken to render."""
    return run is not None and run.stage in ("sending", "waiting", "away")


def _key(jobs: Sequence[Job]) -> Hashable:
    return tuple((job.id, job.fence, job.run_count, job.end_time) for job in jobs)


def _pace(found: Overview, target: float) -> dict[str, Any]:
    """The values of the plot, without the current minute, which is incomplete."""
    complete = found.minutes[:-1]
    return {
        "minutes": [timegm(strptime(minute.at, "%Y-%m-%d %H:%M")) for minute in complete],
        "done": [minute.done for minute in complete],
        "failed": [minute.failed for minute in complete],
        "target": target,
    }


def queue_sentence(
    found: Overview, reports: Sequence[ServerReport], agents: int, seconds_left: float | None = None
) -> str:
    """How much is done, what needs attention, and how long the rest takes."""
    counts = found.counts
    if not counts.total:
        return "Nothing is queued yet."
    needy = f", {attention(counts.attention)}" if counts.attention else ""
    return f"{counts.done:,} of {counts.total:,} done{needy}{_outlook(found, reports, agents, seconds_left)}."


def _outlook(found: Overview, reports: Sequence[ServerReport], agents: int, seconds_left: float | None) -> str:
    kept = f", {found.kept:,}{' or more' if found.kept == KEPT_COUNTED else ''} paused" if found.kept else ""
    left = found.left
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
    return f"{kept}{outlook(seconds_left) or f', {left:,} to come'}{servers}"


def has_agent(found: Overview, agents: int) -> bool:
    """Whether an agent works: one of this machine, or one elsewhere that holds a lease."""
    return bool(agents) or any((job.lease_expires_at or "") > found.at for job in found.processing)
