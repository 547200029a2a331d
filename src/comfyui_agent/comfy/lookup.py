"""Asking a server whether it knows a prompt: first the queue, then the history.

The other order can miss a prompt that ends between the two looks. And a post whose sender is gone may still arrive a
moment later, so "unknown" is believed only from two looks a while apart.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from comfyui_agent.comfy import shapes
from comfyui_agent.comfy.answers import HistoryEntry, QueueView
from comfyui_agent.comfy.errors import ProtocolError
from comfyui_agent.comfy.transport import Transport


@dataclass(frozen=True)
class Waiting:
    """In the queue, with so many prompts to run before it, where that is known."""

    ahead: int | None


@dataclass(frozen=True)
class Running:
    """Being executed."""


@dataclass(frozen=True)
class Ended:
    entry: HistoryEntry


@dataclass(frozen=True)
class Unknown:
    """In neither: never posted, lost in a restart, deleted, or evicted from the history. They look alike."""


Sighting = Waiting | Running | Ended | Unknown


async def look_at_queue(transport: Transport) -> QueueView:
    return await transport.get_json("queue", QueueView.read, most=transport.limits.queue_bytes)


async def look_at_history(transport: Transport, prompt_id: str) -> HistoryEntry | None:
    read = partial(HistoryEntry.read, prompt_id)
    return await transport.get_json(f"history/{prompt_id}", read, most=transport.limits.history_bytes)


async def look_at_job(transport: Transport, prompt_id: str) -> Waiting | Running | None:
    """Ask for one job, if the queue is too long to be read; None if it has ended. ProtocolError before ComfyUI 0.6."""
    answer = await transport.ask_again("GET", f"api/jobs/{prompt_id}", most=transport.limits.history_bytes)
    job = await transport.parse(answer, "api/jobs", lambda document: shapes.expect(dict, document, "a job"))
    if answer.status == 404 and "error" in job:
        return None
    if answer.status != 200:
        raise ProtocolError(f"{transport.address} answered api/jobs with {answer.status}")
    if job.get("status") == "in_progress":
        return Running()
    return Waiting(None) if job.get("status") == "pending" else None


async def look_up(transport: Transport, prompt_id: str) -> Sighting:
    sighting = in_queue(await look_at_queue(transport), prompt_id)
    if sighting is not None:
        return sighting
    entry = await look_at_history(transport, prompt_id)
    return Unknown() if entry is None else Ended(entry)


async def look_up_twice(transport: Transport, prompt_id: str) -> Sighting:
    """Look until the prompt is seen; `Unknown` only after a second look some seconds later."""
    sighting = await look_up(transport, prompt_id)
    if isinstance(sighting, Unknown):
        await asyncio.sleep(transport.limits.look_again_seconds)
        sighting = await look_up(transport, prompt_id)
    return sighting


def in_queue(view: QueueView, prompt_id: str) -> Waiting | Running | None:
    if any(prompt.prompt_id == prompt_id for prompt in view.running):
        return Running()
    for ahead, prompt in enumerate(view.pending):
        if prompt.prompt_id == prompt_id:
            return Waiting(ahead + len(view.running))
    return None
