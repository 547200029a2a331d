"""How soon a finished render is a file in its place and a job that is `done`, on disk."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from comfyui_agent.config.settings import Comfy, Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.agent import Agent
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import Operation
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store
from pausing import at, entries_of
from report import Line, at_most, p95
from working import Work, fresh_work

WHY = "with a full queue the next prompts, downloads and checks of several jobs share few cores with the server"


class TimedStore(Store):
    """A store that notes when each `done` was known to be on disk."""

    def __init__(self, driver: SqliteDriver) -> None:
        super().__init__(driver)
        self.done_at: dict[int, float] = {}

    async def run(self, operation: Operation[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = await super().run(operation, *args, **kwargs)
        if operation is ops.complete_job:
            self.done_at[args[0].job_id] = time.time()
        return result


async def _delays(work: Work, url: str) -> list[float]:
    settings = Settings(comfyui=Comfy(servers=(url,)))
    store = TimedStore(SqliteDriver.open(work.database))
    try:
        agent = Agent(store, Workspace(work.root, settings))
        assert await agent.run(until_idle=True) == 0
        jobs = await store.run(ops.list_jobs, limit=100_000)
    finally:
        await store.close()
    entries = await entries_of(url, [str(job.prompt_id) for job in jobs])
    return [
        (store.done_at[job.id] - at(entry, "execution_success")) * 1000
        for job, entry in zip(jobs, entries, strict=True)
    ]


def delays(url: str, count: int) -> list[float]:
    """Milliseconds from the end of each render, by the server's clock, to `done`; the queue is never empty."""
    with fresh_work() as work:
        work.submit(count)
        return asyncio.run(_delays(work, url))


def measure_p95(name: str, url: str, jobs: int) -> list[Line]:
    found = delays(url, jobs)
    what = f"{name}: end of a render to done, p95 of {jobs}, median {statistics.median(found):.0f} ms"
    return [at_most(what, 50, p95(found), " ms", why=WHY)]


def measure_median(name: str, url: str, jobs: int) -> list[Line]:
    found = delays(url, jobs)
    what = f"{name}: end of a render to done, median of {jobs}, p95 {p95(found):.0f} ms"
    return [at_most(what, 50, statistics.median(found), " ms", why=WHY)]
