"""Checks that several scenarios share."""

from __future__ import annotations

from collections.abc import Collection

from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.lab.chaos.findings import Findings
from comfyui_agent.lab.chaos.sandbox import Sandbox


async def check_all_ended(sandbox: Sandbox, findings: Findings, ended: bool) -> None:
    counts = await sandbox.counts()
    left = counts.total - counts.done - counts.failed
    seen = f"{left} of {counts.total} did not" + ("" if sandbox.is_agent_alive else "; the agent is gone")
    findings.check("every page", "ends", "they do" if ended else seen, ended)


async def check_others_done(sandbox: Sandbox, findings: Findings, apart: Collection[int] = ()) -> None:
    """All pages are done, except those whose job ids are in `apart`."""
    others = [job for job in await sandbox.jobs() if job.id not in apart]
    done = sum(job.status is JobStatus.DONE for job in others)
    what = "the other pages" if apart else "the pages"
    findings.check(what, f"all {len(others)} done", f"{done} done", done == len(others))


async def check_pages_get_done(sandbox: Sandbox, findings: Findings) -> None:
    """Wait for the first page that is done: the agent works before anything is broken."""
    began = await sandbox.until_done(1)
    findings.check("before the fault", "pages get done", "they do" if began else "nothing is done", began)


def first_line(job: Job) -> str:
    return (job.error_trace or "no reason").partition("\n")[0]
