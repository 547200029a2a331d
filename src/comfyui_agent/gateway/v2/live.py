"""What is at work, looked at a few times a second at most, once for all who ask."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from comfyui_agent.comfy.tasks import end_tasks
from comfyui_agent.domain.jobs import JobId
from comfyui_agent.engine.live_runs import LiveRun, read_live, want_previews
from comfyui_agent.gateway.context import Gateway
from comfyui_agent.pools import FILES
from comfyui_agent.store import operations as ops
from comfyui_agent.store.posted_prompts import OpenPrompt, PostedPrompt

FRESH_SECONDS = 0.25
MOST_COUNTED = 1_000
AT_WORK = ("rendering", "fetching")


@dataclass(frozen=True)
class Look:
    """One look: runs on this machine, and those of the watched jobs that have not ended, by job."""

    runs: Mapping[int, LiveRun]
    open: Mapping[int, OpenPrompt]


class LiveJobs:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._watched: Counter[JobId] = Counter()
        self._looking: asyncio.Task[Look] | None = None
        self._looked_at = 0.0

    async def stop(self) -> None:
        await end_tasks([self._looking] if self._looking is not None else [])

    @contextmanager
    def watching(self, job_id: JobId) -> Iterator[None]:
        """Looks are at this job, too, and agents show previews, until the end of this block."""
        self._watched[job_id] += 1
        try:
            yield
        finally:
            self._watched[job_id] -= 1
            self._watched += Counter()

    async def look(self) -> Look:
        """The newest look, which is not older than a moment."""
        task = self._looking
        if task is None or (task.done() and time.monotonic() - self._looked_at >= FRESH_SECONDS):
            self._looked_at = time.monotonic()
            task = self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(task)

    async def _look(self) -> Look:
        folder, watched = self._gateway.workspace.locks, list(self._watched)
        if watched:
            await FILES.run(want_previews, folder)
        runs = await FILES.run(read_live, folder)
        opened = await self._gateway.store.run(ops.open_among, watched) if watched else []
        return Look({run.job_id: run for run in runs}, {each.job_id: each for each in opened})

    async def status(self, prompt: PostedPrompt | OpenPrompt, run: LiveRun | None) -> dict[str, Any]:
        """The status of a job that has not ended, and its place among all that may run, from 0, while it waits."""
        is_heard = self._gateway.relay.started(prompt.prompt_id) is not None or (run and run.stage in AT_WORK)
        if prompt.status == "processing" and (is_heard or prompt.has_run):
            return {"status": "running", "queue_position": None}
        ahead = 0
        if prompt.status == "pending":
            ahead = await self._gateway.store.run(ops.queue_position, prompt.job_id, prompt.priority, MOST_COUNTED)
        return {"status": "queued", "queue_position": ahead}


def progress_of(run: LiveRun | None) -> dict[str, Any] | None:
    """How far a run is: its nodes, and the steps of the one at work."""
    if run is None or run.stage not in AT_WORK or not run.nodes_total:
        return None
    step = run.step / run.steps if run.steps else 0.0
    return {
        "value": max(0.0, min(1.0, (run.nodes_done + step) / run.nodes_total)),
        "nodes_done": run.nodes_done,
        "nodes_total": run.nodes_total,
        "current_node": run.node_id or None,
        "current_node_class": run.node_type or None,
        "step": run.step if run.steps else None,
        "steps": run.steps or None,
        "message": f"{run.node_type} {run.step}/{run.steps}" if run.steps else run.node_type or None,
    }
