"""The page of a batch: its grid as it fills, two results side by side, and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.batches.members import effective_inputs, settings_of
from comfyui_agent.domain.badges import BADGES
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job, JobId
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.web.cell_facts import Facts
from comfyui_agent.web.context import LONGEST_ID
from comfyui_agent.web.pages.cells import (
    about_batch,
    batch_here,
    jobs_here,
    live_by_job,
    looks,
    maker,
    short_label,
    stands,
)
from comfyui_agent.web.pages.grid_view import ON_A_SHEET, GridView, grid_view_of
from comfyui_agent.web.pages.queue import ATTENTION
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

ON_A_LIST = 60
MOST_COMPARED = 2
UNSET = "not set"
STATES = {
    **{status.value: badge.word for status, badge in BADGES.items()},
    "attention": BADGES[JobStatus.FAILED].word,
    "aside": "Cancelled or dismissed",
}


@dataclass(frozen=True)
class Slot:
    """A cell of the grid. Its content is a live fragment; the cell itself stays, with what people selected."""

    id: str
    job: Job | None
    label: str


async def build(view: View) -> Screen:
    batch = await batch_here(view)
    live = await live_by_job(view)
    compared = await _compared(view, batch)
    grid = grid_view_of(view, batch)
    layout = {key: name for key, name in vars(grid.wanted).items() if name}
    fragments = [
        Fragment("batch-actions", {"batch": batch, "layout": layout}),
        Fragment("batch-tabs", {"batch": batch}),
    ]
    if view.asked("compare"):
        fragments.append(await _comparison(view, batch, compared, live))
    picked = [job.id for job in compared]
    values: dict[str, Any] = {"batch": batch, "maker": await maker(view, batch), "picked": picked}
    values["about"] = await about_batch(view, batch)
    if view.asked("status"):
        fragments.append(await _list(view, batch, live))
        values |= {"grid": None, "slots": {}, "loose": []}
    else:
        slots, loose = await _slots(view, batch, grid)
        cells = [*slots.values(), *loose]
        about = await view.context.cells.of(slot.job for slot in cells if slot.job)
        fragments += [_cell(view, slot, live, grid, about) for slot in cells]
        fragments.append(Fragment("batch-more", {"count": len(slots) + len(loose)}))
        values |= {"grid": grid, "slots": slots, "loose": loose}
    sentence = await stands(view, batch)
    return Screen("batch.html", batch.name or batch.id, sentence, tuple(fragments), values, "batches")


async def _slots(view: View, batch: Batch, grid: GridView) -> tuple[dict[int, Slot], list[Slot]]:
    """The cells by index, and the members without an index, which follow the last contact sheet."""
    found: dict[int, Job] = {}
    for job in await view.context.store.run(ops.members_at, batch.id, grid.indexes):
        found.setdefault(job.batch_index or 0, job)
    known = grid.indexes if grid.is_matrix else sorted(found)
    slots = {
        index: Slot(f"cell-{index}", found.get(index), short_label(batch, found[index]) if index in found else "")
        for index in known
    }
    room = 0 if grid.is_matrix or grid.after else ON_A_SHEET - len(slots)
    loose = await view.context.store.run(ops.members_without_place, batch.id, room) if room > 0 else []
    return slots, [Slot(f"member-{job.id}", job, job.config_name) for job in loose]


def _cell(
    view: View, slot: Slot, live: Mapping[int, LiveRun], grid: GridView, about: Mapping[JobId, Facts]
) -> Fragment:
    run, facts = (live.get(slot.job.id), about[slot.job.id]) if slot.job else (None, None)
    values = {"job": slot.job, "live": run, "label": slot.label, "is_matrix": grid.is_matrix, "about": facts}
    return Fragment(slot.id, values, (view.role, looks(slot.job, run), facts), "batch_cell.html")


async def _list(view: View, batch: Batch, live: dict[int, LiveRun]) -> Fragment:
    """The members in one state, as one fragment because they come and go."""
    status = view.asked("status")
    if status not in STATES:
        raise NoScreen(f"no member is {status[:40]!r}: {', '.join(STATES)}")
    wanted = JobFilter(
        status=None if status in ATTENTION else JobStatus(status), attention=ATTENTION.get(status), batch_id=batch.id
    )
    page = await jobs_here(view, wanted, ON_A_LIST, "its first page")
    cells = [(job, live.get(job.id), short_label(batch, job)) for job in page.jobs]
    about = await view.context.cells.of(page.jobs)
    values = {"cells": cells, "word": STATES[status], "cursor": page.cursor, "about": about}
    return Fragment("batch-list", values, tuple(looks(job, run) for job, run, _ in cells))


async def _compared(view: View, batch: Batch) -> list[Job]:
    """The members of this batch that the query names, as `12,15` or one by one; at most two."""
    named = [name for key, value in view.query if key == "compare" for name in value.split(",")]
    ids = dict.fromkeys(int(name) for name in named if name.isascii() and name.isdigit() and len(name) < LONGEST_ID)
    found = [await view.context.store.run(ops.find_job_by_id, JobId(each)) for each in list(ids)[:MOST_COMPARED]]
    return [job for job in found if job is not None and job.batch_id == batch.id]


async def _comparison(view: View, batch: Batch, jobs: Sequence[Job], live: Mapping[int, LiveRun]) -> Fragment:
    settings = [settings_of(job, batch) or effective_inputs(job, batch) for job in jobs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    sides = [
        {
            "job": job,
            "live": live.get(job.id),
            "label": short_label(batch, job),
            "results": await FILES.run(view.context.outputs.shown, job, 1) if job.status is JobStatus.DONE else [],
            "settings": each,
        }
        for job, each in zip(jobs, settings, strict=True)
    ]
    differing = [
        name for name in names if any(each.get(name, UNSET) != settings[0].get(name, UNSET) for each in settings)
    ]
    values = {"sides": sides, "names": names, "differing": differing}
    return Fragment("compare", values, tuple(looks(job, live.get(job.id)) for job in jobs), "batch_compare.html")
