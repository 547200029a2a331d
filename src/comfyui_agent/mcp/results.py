"""Results to look at: an image that is small enough, and where it is in full size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfyui_agent.batches.members import settings_of
from comfyui_agent.domain.batches import Batch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.domain.texts import json_text
from comfyui_agent.mcp.answers import ResultAnswer
from comfyui_agent.mcp.host import Client, Host
from comfyui_agent.mcp.standings import has_ended, name_of, short, state_of
from comfyui_agent.pictures.thumbnails import NoThumbnail, encode_picture
from comfyui_agent.pools import FILES, THUMBNAILS
from comfyui_agent.store import operations as ops
from comfyui_agent.usecases.errors import NotFound
from comfyui_agent.usecases.takes import takes_of

MOST_VALUES = 30
LARGEST_PICTURE = 750_000
"""In bytes. As text it is a third larger, so that an answer stays below 1 MB."""


async def result_of(
    host: Host, client: Client, thing: Job | Batch, number: int | None, take: int | None, size: int
) -> ResultAnswer:
    """A result of a job, a member of a batch, or the grid of one."""
    if isinstance(thing, Job):
        return await _of_job(host, client, thing, {}, number or 1, take, size)
    if number is None:
        return await _grid(host, client, thing, size)
    found = await host.store.run(ops.members_at, thing.id, [number - 1])
    if not found:
        raise NotFound(f"{thing.id} has no number {number}", f"It has {thing.total:,}.")
    return await _of_job(host, client, found[0], settings_of(found[0], thing), 1, take, size)


async def _of_job(
    host: Host, client: Client, job: Job, settings: dict[str, Any], number: int, take: int | None, size: int
) -> ResultAnswer:
    takes = {each.number: each for each in await takes_of(host.store, job)}
    is_there, name, state = job.status is JobStatus.DONE, name_of(job), state_of(job)
    if take is not None:
        if take not in takes:
            raise NotFound(f"{name} has no take {take}", f"There are: {[*takes]}.")
        settings = settings if takes[take].counts else {}
        job, is_there = job.of_take(take, takes[take].outputs), True
    count = len(job.outputs) if is_there else 0
    answer = ResultAnswer(summary=f"{name} is not done: {state}.", next="", id=str(job.id), name=name, state=state)
    answer.results, answer.takes, answer.settings = count, [*takes], all_brief(settings)
    answer.next = f'status(id="{job.id}") says why; wait follows it.'
    if not is_there:
        return answer
    if number > count:
        raise NotFound(f"{name} has no result {number}", f"It has {count}.")
    answer.summary = f"Result {number} of {count} of {name}{f', take {take}' if take else ''}. The job: {state}."
    answer.next = "At address it is in full size."
    answer.address = client.address(host, job, number)
    return await _pictured(answer, lambda: host.results.path_of(job, number), size)


async def _grid(host: Host, client: Client, batch: Batch, size: int) -> ResultAnswer:
    state, recorded = state_of(batch), batch.grid
    due = "it is being made" if batch.is_grid_due else "it is made when a sweep ends"
    why = f"There is no grid of {batch.id}: {short(batch.grid_problem or due)}. It is {state}."
    look = f"With number=1 to {batch.total} see one of them."
    answer = ResultAnswer(summary=why, next=look, id=batch.id, name=batch.name, state=state)
    if not recorded:
        return answer
    when = "" if has_ended(batch) and not batch.is_grid_due else " of an earlier run"
    answer.summary = f"The grid{when} of {batch.id}: {batch.done:,} of {batch.total:,} done, {state}."
    answer.address = client.grid_address(host, batch.id, recorded)
    return await _pictured(answer, lambda: host.results.grid(recorded), size)


async def _pictured(answer: ResultAnswer, find: Callable[[], Path], size: int) -> ResultAnswer:
    """The answer with its picture, or why there is none."""
    try:
        path = await FILES.run(find)
        answer.image, width, height = await THUMBNAILS.run(encode_picture, path, size, LARGEST_PICTURE)
        answer.picture = f"image/webp, {width} x {height} pixels"
    except (NoThumbnail, OSError, ValueError) as error:
        answer.summary += f" It cannot be shown as an image: {short(str(error))}."
    return answer


def brief(value: Any, longest: int = 300) -> Any:
    """A value as it is if it is small, else the beginning of its text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return short(value if isinstance(value, str) else json_text(value), longest)


def all_brief(values: dict[str, Any]) -> dict[str, Any]:
    return {short(name, 100): brief(value) for name, value in [*values.items()][:MOST_VALUES]}
