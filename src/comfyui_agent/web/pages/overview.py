"""The overview: what renders now, what came of it, what needs a person; in five seconds."""

from __future__ import annotations

from calendar import timegm
from collections.abc import Hashable, Sequence
from time import strptime
from typing import Any

from comfyui_agent.batches.batch_summary import sentence
from comfyui_agent.domain.badges import SERVER_MARKS
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.pace import rate_of
from comfyui_agent.domain.texts import counted
from comfyui_agent.engine.live_files import LiveRun
from comfyui_agent.engine.server_reports import ServerReport
from comfyui_agent.store import operations as ops
from comfyui_agent.store.overview import Overview
from comfyui_agent.web.queue_summary import is_worked_off, stands
from comfyui_agent.web.screens import Fragment, Screen, View

MOST_RUNNING = 8
MOST_BATCHES = 6
MOST_FOLLOWING = 4


async def build(view: View) -> Screen:
    found = await view.context.store.run(ops.read_overview)
    fleet = view.context.fleet
    reports, agents = await fleet.reports(), await fleet.agents()
    live = {run.job_id: run for run in await fleet.live()}
    at_work = [job for job in found.processing if not _waits(live.get(job.id))]
    following = [job for job in found.processing if _waits(live.get(job.id))]
    target = view.context.workspace.settings.sla.images_per_minute
    finding = _finding(found, target)
    return Screen(
        template="overview.html",
        title="Overview",
        sentence=stands(found, reports, agents),
        section="overview",
        fragments=(
            Fragment("overview-notice", "overview_notice.html", {"notice": _notice(found, reports, agents)}),
            Fragment("overview-counts", "overview_counts.html", {"found": found, "reports": reports}),
            Fragment(
                "overview-running",
                "overview_running.html",
                {
                    "jobs": at_work[:MOST_RUNNING],
                    "following": following[:MOST_FOLLOWING],
                    "live": live,
                    "count": found.counts.processing,
                },
            ),
            Fragment(
                "overview-attention",
                "overview_attention.html",
                {"jobs": found.failed, "counts": found.counts},
                key=(_seen(found.failed), found.counts.attention),
            ),
            Fragment(
                "overview-batches",
                "overview_batches.html",
                {
                    "batches": [(batch, sentence(batch)) for batch in found.batches[:MOST_BATCHES]],
                    "more": len(found.batches) > MOST_BATCHES,
                },
            ),
            Fragment("overview-servers", "overview_servers.html", {"reports": reports, "marks": SERVER_MARKS}),
            Fragment("overview-pace", "overview_pace.html", {"finding": finding, "pace": _pace(found, target)}),
            Fragment(
                "overview-results",
                "overview_results.html",
                {"jobs": found.done, "counts": found.counts},
                key=(_seen(found.done), found.counts.done),
            ),
        ),
    )


def _waits(run: LiveRun | None) -> bool:
    """Whether it is at a server, behind others. What another machine has at work is taken to render."""
    return run is not None and run.stage in ("sending", "waiting", "away")


def _seen(jobs: Sequence[Job]) -> Hashable:
    """Another value whenever one of them looks different."""
    return tuple((job.id, job.fence, job.run_count, job.end_time) for job in jobs)


def _notice(found: Overview, reports: Sequence[ServerReport], agents: int) -> tuple[str, str] | None:
    """What keeps the work from going on, and what to type."""
    waits = found.counts.pending + found.counts.processing
    if not is_worked_off(found, agents):
        words = (
            f"No agent works here, and {counted(waits, 'job waits', 'jobs wait')}." if waits else "No agent works here."
        )
        return f"{words} Start one from a terminal in the workspace:", "e3 run"
    if reports and all(report.stats is None for report in reports):
        return "No server answers. See that ComfyUI runs and that its address is right; this says more:", "e3 doctor"
    return None


def _finding(found: Overview, target: float) -> str:
    """What the plot shows, in words."""
    failed = f", {found.failed_last_hour:,} failed" if found.failed_last_hour else ""
    hour = f"{counted(found.done_last_hour, 'image')} in the last hour{failed}"
    if not found.done_last_hour and not found.failed_last_hour:
        return "Nothing has ended in the last hour"
    if not found.done_last_five:
        return f"{hour}; none in the last 5 minutes"
    said = rate_of(found.per_minute / 60)
    if target <= 0:
        return f"{said} now; {hour}"
    side = "above" if found.per_minute >= target else "below"
    return f"{said} now, {side} the target of {target:g}; {hour}"


def _pace(found: Overview, target: float) -> dict[str, Any]:
    """The minutes that are over: the one that runs has not got all of its images."""
    over = found.minutes[:-1]
    return {
        "minutes": [timegm(strptime(minute.at, "%Y-%m-%d %H:%M")) for minute in over],
        "done": [minute.done for minute in over],
        "failed": [minute.failed for minute in over],
        "target": target,
    }
