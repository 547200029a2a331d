"""Stopping a batch, and saying what could not be stopped. Runs on Python 3.9."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from comfyui_agent.nodes.core.batch_state import BatchState
from comfyui_agent.nodes.host import ComfyUI, MissingPiece

STOP_SECONDS = 3.0
"""So long ComfyUI may take to stop what runs, and to take a prompt that is on its way in."""
LOOK_SECONDS = 0.02
STILL_RUNS = "it was told to stop and still runs; its result will not be counted"
STILL_WAITS = "it could not be taken out of the queue; its result will not be counted"

STILL_CHECKED = "ComfyUI is still checking it; it may run, and its result will not be counted"
UNKNOWN = "this ComfyUI does not tell whether it runs; its result will not be counted"


@dataclass
class Cancellation:
    """What became of the members that had not ended, by prompt id."""

    batch_id: str
    state: str
    deleted: list[str] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    not_stopped: list[dict[str, str]] = field(default_factory=list)
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def cancel(batch: BatchState, host: ComfyUI) -> Cancellation:
    """Delete what waits, interrupt what runs, and see that it is gone."""
    with batch.queueing:
        batch.cancelled = True
    said = Cancellation(batch.batch_id, "cancelled")
    is_on_its_way = batch.queued == 0
    until = time.monotonic() + STOP_SECONDS
    problems: list[str] = []
    while True:
        members = {batch.prompt_ids[index] for index in batch.open_indices} or set(batch.prompt_ids[:1])
        said.deleted += [each for each in _deleted(members, host, problems) if each not in said.deleted]
        said.interrupted += [each for each in _interrupted(members, host, problems) if each not in said.interrupted]
        standing = host.standing()
        has_come = bool(said.deleted or said.interrupted or batch.ended_as) or not is_on_its_way
        if standing is None or (has_come and not members & {*standing.running, *standing.queued}):
            break
        if time.monotonic() > until:
            break
        time.sleep(LOOK_SECONDS)
    if standing is not None and not has_come:
        said.not_stopped = [{"prompt_id": batch.prompt_ids[0], "reason": STILL_CHECKED}]
        members.discard(batch.prompt_ids[0])
    said.not_stopped += _not_stopped(members - set(said.deleted), host, "; ".join(dict.fromkeys(problems)))
    said.interrupted = [each for each in said.interrupted if each not in {n["prompt_id"] for n in said.not_stopped}]
    left = batch.total - len(batch.results) - len(batch.failed)
    said.message = f"{left} of {batch.total} will not be made; {batch.completed_count} are there"
    return said


def _deleted(members: set[str], host: ComfyUI, problems: list[str]) -> list[str]:
    standing = host.standing()
    waiting = [each for each in members if standing is None or each in standing.queued]
    try:
        return [each for each in waiting if host.delete(each)]
    except MissingPiece as piece:
        problems.append(str(piece))
        return []


def _interrupted(members: set[str], host: ComfyUI, problems: list[str]) -> list[str]:
    """Told again at each look: what is told just before a prompt begins is forgotten."""
    try:
        return host.interrupt(members)
    except MissingPiece as piece:
        problems.append(str(piece))
        return []


def _not_stopped(members: set[str], host: ComfyUI, problem: str) -> list[dict[str, str]]:
    standing = host.standing()
    if standing is None:
        return [{"prompt_id": each, "reason": problem or UNKNOWN} for each in sorted(members)]
    running = [{"prompt_id": each, "reason": problem or STILL_RUNS} for each in standing.running if each in members]
    queued = [{"prompt_id": each, "reason": problem or STILL_WAITS} for each in standing.queued if each in members]
    return running + queued
