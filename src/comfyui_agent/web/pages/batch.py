"""The page of a batch: its grid as it fills, two results side by side, and actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.badges import BADGES
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.live_runs import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.web.pages.batch_pace import stands
from comfyui_agent.web.pages.cells import batch_here, jobs_here, live_by_job, looks, maker, short_label, shown
from comfyui_agent.web.pages.comparison import compare_part, compared_here
from comfyui_agent.web.pages.grid_view import ON_A_SHEET, GridView, grid_view_of
from comfyui_agent.web.pages.queue import ATTENTION
from comfyui_agent.web.screens import Choice, Fragment, NoScreen, Screen, View

ON_A_LIST = 60
STATES = {
    **{status.value: str(badge) for status, badge in BADGES.items()},
    "attention": str(BADGES[JobStatus.FAILED]),
    "aside": "◌ Cancelled or dismissed",
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
    compared = await compared_here(view, batch)
    grid = grid_view_of(view, batch)
    layout = {key: name for key, name in vars(grid.wanted).items() if name}
    fragments = [
        Fragment("batch-actions", {"batch": batch, "layout": layout}),
        Fragment("batch-tabs", {"batch": batch, "tabs": _tabs(view, batch)}),
    ]
    if view.asked("compare"):
        fragments.append(await compare_part(view, batch, compared, live))
    values: dict[str, Any] = {
        "batch": batch,
        "about": _about(batch, await maker(view, batch)),
        "picked": [job.id for job in compared],
    }
    if view.asked("status"):
        fragments.append(await _list(view, batch, live))
        values |= {"grid": None, "slots": {}, "loose": []}
    else:
        slots, loose = await _slots(view, batch, grid)
        fragments += [_cell(view, slot, live, grid) for slot in [*slots.values(), *loose]]
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


def _cell(view: View, slot: Slot, live: dict[int, LiveRun], grid: GridView) -> Fragment:
    run = live.get(slot.job.id) if slot.job else None
    values = {"job": slot.job, "live": run, "label": slot.label, "is_matrix": grid.is_matrix}
    return Fragment(slot.id, values, (view.role, looks(slot.job, run)), "batch_cell.html")


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
    values = {"cells": cells, "word": STATES[status].partition(" ")[2], **view.pager(page.cursor)}
    return Fragment("batch-list", values, tuple(looks(job, run) for job, run, _ in cells))


def _tabs(view: View, batch: Batch) -> list[Choice]:
    """Tabs for all members, and for those in each state, with their counts."""
    asked = view.asked("status")
    clean = {"cursor": None, "compare": None, "page": None, "row": None, "column": None, "from": None}
    counts = {
        "attention": batch.attention,
        "processing": batch.processing,
        "pending": batch.pending,
        "done": batch.done,
        "aside": batch.failed - batch.attention,
    }
    tabs = [Choice(f"All {batch.total:,}", view.link(status=None, **clean), not asked)]
    for state, count in counts.items():
        if count or asked == state:
            tabs.append(Choice(f"{STATES[state]} {count:,}", view.link(status=state, **clean), asked == state))
    return tabs


def _about(batch: Batch, made_by: str) -> list[tuple[str, str]]:
    axes = batch.metadata.get("axes")
    facts = [("Id", batch.id), ("Made by", made_by), ("Workflow", str(batch.metadata.get("workflow") or ""))]
    for axis in axes if isinstance(axes, list) else []:
        if isinstance(axis, dict) and isinstance(axis.get("values"), list):
            facts.append((str(axis.get("name")), _listed(axis["values"])))
    inputs = batch.metadata.get("inputs")
    for name, value in inputs.items() if isinstance(inputs, dict) else ():
        facts.append((str(name), shown(value)))
    facts.append(("Folder", str(batch.metadata.get("folder") or "")))
    return facts


def _listed(values: Sequence[Any]) -> str:
    first = ", ".join(shown(value) for value in values[:8])
    return f"{first} … {shown(values[-1])} ({len(values):,} values)" if len(values) > 8 else first
