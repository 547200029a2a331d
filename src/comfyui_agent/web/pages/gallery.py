"""The gallery: results as pictures, with filters; it goes on where one has scrolled to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import counted
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_pages import JobFilter, Rated
from comfyui_agent.store.records import Counts
from comfyui_agent.usecases.prompts import Made
from comfyui_agent.web.pages.cells import jobs_here, recipes_here
from comfyui_agent.web.screens import NoScreen, Screen, View

AT_ONCE = 60
LONGEST = 200
FILTERS = ("q", "show", "batch", "workflow", "model", "since", "until")
SHOWN: Mapping[str, Rated | None] = {
    "": Rated.KEPT,
    "starred": Rated.STARRED,
    "rejected": Rated.REJECTED,
    "all": None,
}
WORDS = {"starred": "starred", "rejected": "rejected"}
MODELS_LOOKED_AT, BATCHES_LISTED = 500, 50


async def build(view: View) -> Screen:
    store = view.context.store
    asked = {name: view.asked(name).strip()[:LONGEST] for name in FILTERS}
    page = await jobs_here(view, _wanted(asked), AT_ONCE, "/gallery")
    made = await view.context.prompts.made([job.id for job in page.jobs])
    counts = await store.run(ops.count_jobs)
    workflows = await recipes_here(view)
    models = await store.run(ops.known_models, MODELS_LOOKED_AT)
    batches = await store.run(ops.newest_batches, limit=BATCHES_LISTED)
    values: dict[str, Any] = {
        "asked": asked,
        "page": page,
        "made": {job.id: made.get(job.id, Made()) for job in page.jobs},
        "has_results": counts.done > 0,
        "workflows": sorted(filter(None, {*workflows, asked["workflow"]})),
        "models": sorted(filter(None, {*models, asked["model"]})),
        "batches": {each.id: each.name or each.id for each in batches} | ({asked["batch"]: asked["batch"]}),
    }
    return Screen("gallery.html", "Gallery", _sentence(counts, asked), (), values, "gallery")


def _wanted(asked: Mapping[str, str]) -> JobFilter:
    if asked["show"] not in SHOWN:
        raise NoScreen(f"nothing is {asked['show'][:40]!r}: it is one of {', '.join(filter(None, SHOWN))}")
    until = _day("until", asked["until"])
    return JobFilter(
        status=JobStatus.DONE,
        rated=SHOWN[asked["show"]],
        batch_id=asked["batch"] or None,
        workflow_id=asked["workflow"] or None,
        model=asked["model"] or None,
        since=_day("since", asked["since"]),
        until=until + timedelta(days=1) if until else None,
        prompt=asked["q"],
    )


def _day(name: str, said: str) -> datetime | None:
    """The beginning of a day in UTC."""
    try:
        found = datetime.strptime(said, "%Y-%m-%d").replace(tzinfo=timezone.utc) if said else None
    except ValueError:
        found = None
    if said and (found is None or not 2 <= found.year <= 9998):
        raise NoScreen(f"{name}: {said[:40]!r} is no day: write one such as 2025-08-09")
    return found


def _sentence(counts: Counts, asked: Mapping[str, str]) -> str:
    """What is shown, and of how many."""
    said = [
        WORDS.get(asked["show"], ""),
        f"with “{asked['q']}” in their prompts" if asked["q"] else "",
        f"of {asked['batch']}" if asked["batch"] else "",
        f"of {asked['workflow']}" if asked["workflow"] else "",
        f"made with {asked['model']}" if asked["model"] else "",
        f"from {asked['since']} on" if asked["since"] else "",
        f"up to {asked['until']}" if asked["until"] else "",
    ]
    if not counts.done:
        return "No results yet."
    text = ", ".join(filter(None, said))
    return f"Results {text}, newest first." if text else f"{counted(counts.done, 'result')}, newest first."
