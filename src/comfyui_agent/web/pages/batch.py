"""A batch: its grid as it fills in, two of its results side by side, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.domain.badges import BADGES
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.engine.live_files import LiveRun
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import BadCursor, JobFilter, JobPage
from comfyui_agent.web.pages.batch_pace import stands
from comfyui_agent.web.pages.cells import batch_here, link, live_by_job, looks, maker, short_label, shown
from comfyui_agent.web.pages.comparison import compare_part, compared_here
from comfyui_agent.web.pages.queue import ATTENTION
from comfyui_agent.web.pages.windows import ON_A_SHEET, Choice, Window, window_of
from comfyui_agent.web.screens import Fragment, NoScreen, Screen, View

ON_A_LIST = 60
STATES = {
    **{status.value: str(badge) for status, badge in BADGES.items()},
    "attention": str(BADGES[JobStatus.FAILED]),
    "aside": "◌ Cancelled or dismissed",
}


@dataclass(frozen=True)
class Slot:
    """A place of the grid. What is in it lives; the place itself stays, and so does what people picked."""

    id: str
    job: Job | None
    label: str


async def build(view: View) -> Screen:
    batch = await batch_here(view)
    live = await live_by_job(view)
    compared = await compared_here(view, batch)
    window = window_of(view, batch)
    layout = {key: name for key, name in vars(window.wish).items() if name}
    fragments = [
        Fragment("batch-actions", "batch_actions.html", {"batch": batch, "layout": layout}),
        Fragment("batch-tabs", "batch_tabs.html", {"batch": batch, "tabs": _tabs(view, batch)}),
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
        values |= {"window": None, "slots": {}, "loose": []}
    else:
        slots, loose = await _slots(view, batch, window)
        fragments += [_cell(view, slot, live, window) for slot in [*slots.values(), *loose]]
        fragments.append(Fragment("batch-more", "batch_more.html", {"count": len(slots) + len(loose)}))
        values |= {"window": window, "slots": slots, "loose": loose}
    return Screen(
        "batch.html",
        batch.name or batch.id,
        await stands(view, batch),
        tuple(fragments),
        values,
        "batches",
    )


async def _slots(view: View, batch: Batch, window: Window) -> tuple[dict[int, Slot], list[Slot]]:
    """The places on the screen by number, and behind the last of a contact sheet what has none."""
    found: dict[int, Job] = {}
    for job in await view.context.store.run(ops.members_at, batch.id, window.indexes):
        found.setdefault(job.batch_index or 0, job)
    known = window.indexes if window.is_matrix else sorted(found)
    slots = {
        index: Slot(f"cell-{index}", found.get(index), short_label(batch, found[index]) if index in found else "")
        for index in known
    }
    room = 0 if window.is_matrix or window.after else ON_A_SHEET - len(slots)
    loose = await view.context.store.run(ops.members_without_place, batch.id, room) if room > 0 else []
    return slots, [Slot(f"member-{job.id}", job, job.config_name) for job in loose]


def _cell(view: View, slot: Slot, live: dict[int, LiveRun], window: Window) -> Fragment:
    run = live.get(slot.job.id) if slot.job else None
    values = {"job": slot.job, "live": run, "label": slot.label, "is_matrix": window.is_matrix}
    return Fragment(slot.id, "batch_cell.html", values, key=(view.role, looks(slot.job, run)))


async def _list(view: View, batch: Batch, live: dict[int, LiveRun]) -> Fragment:
    """The members in one state. They come and go, so that they are one part."""
    page = await _page(view, batch)
    cells = [(job, live.get(job.id), short_label(batch, job)) for job in page.jobs]
    values = {
        "cells": cells,
        "next": link(view, cursor=page.cursor) if page.cursor else "",
        "first": link(view, cursor=None) if view.asked("cursor") else "",
        "word": STATES[view.asked("status")].partition(" ")[2],
    }
    return Fragment("batch-list", "batch_list.html", values, key=tuple(looks(job, run) for job, run, _ in cells))


async def _page(view: View, batch: Batch) -> JobPage:
    asked = view.asked("status")
    try:
        wanted = JobFilter(
            status=None if asked in ATTENTION else JobStatus(asked), attention=ATTENTION.get(asked), batch_id=batch.id
        )
        return await view.context.store.run(ops.job_page, wanted, view.asked("cursor") or None, ON_A_LIST)
    except BadCursor:
        raise NoScreen("this part of the list is not there any more: begin at its first page") from None
    except ValueError:
        raise NoScreen(f"no member is {asked[:40]!r}: {', '.join(STATES)}") from None


def _tabs(view: View, batch: Batch) -> list[Choice]:
    """All members, or those in one state, with how many there are."""
    asked = view.asked("status")
    clean = {"cursor": None, "compare": None, "page": None, "row": None, "column": None, "from": None}
    counts = {
        "attention": batch.attention,
        "processing": batch.processing,
        "pending": batch.pending,
        "done": batch.done,
        "aside": batch.failed - batch.attention,
    }
    tabs = [Choice(f"All {batch.total:,}", link(view, status=None, **clean), not asked)]
    for state, count in counts.items():
        if count or asked == state:
            tabs.append(Choice(f"{STATES[state]} {count:,}", link(view, status=state, **clean), asked == state))
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
    words = [shown(value) for value in values[:8]]
    more = f" … {shown(values[-1])} ({len(values):,} values)" if len(values) > 8 else ""
    return ", ".join(words) + more
