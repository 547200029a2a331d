"""Two results of a batch side by side, with the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from comfyui_agent.batches.members import effective_inputs, settings_of
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.web.job_lookup import job_named
from comfyui_agent.web.pages.cells import looks, short_label, shown
from comfyui_agent.web.screens import Fragment, View
from comfyui_agent.web.threads import FILES

MOST = 2
UNSET = "not set"


async def compared_here(view: View, batch: Batch) -> list[Job]:
    """The members of this batch that the query names, as `12,15` or one by one; at most two."""
    named = [name for key, value in view.query if key == "compare" for name in value.split(",")]
    found: list[Job] = []
    for name in [name for name in dict.fromkeys(named) if name.isascii() and name.isdigit()][:MOST]:
        job = await job_named(view.context.store, name)
        if job is not None and job.batch_id == batch.id and str(job.id) == name:
            found.append(job)
    return found


async def compare_part(view: View, batch: Batch, jobs: Sequence[Job], live: Mapping[int, LiveRun]) -> Fragment:
    settings = [settings_of(job, batch) or effective_inputs(job, batch) for job in jobs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    differing = [
        name for name in names if any(each.get(name, UNSET) != settings[0].get(name, UNSET) for each in settings)
    ]
    values = {
        "sides": [
            {
                "job": job,
                "live": live.get(job.id),
                "letter": letter,
                "label": short_label(batch, job),
                "result": await _result(view, job),
                "differs": [(name, shown(each.get(name, UNSET))) for name in differing],
            }
            for job, letter, each in zip(jobs, "AB", settings, strict=False)
        ],
        "differing": differing,
        "same": [(name, shown(settings[0][name])) for name in names if name not in differing],
        "close": view.link(compare=None),
        "swap": view.link(compare=",".join(str(job.id) for job in reversed(jobs))) if len(jobs) == MOST else "",
    }
    return Fragment("compare", values, tuple(looks(job, live.get(job.id)) for job in jobs), "batch_compare.html")


async def _result(view: View, job: Job) -> Any:
    """The first result of a job, if it can be shown."""
    if job.status is not JobStatus.DONE:
        return None
    return next(iter(await FILES.run(view.context.outputs.shown, job, 1)), None)
