"""How far forecasts are from what comes: two servers of different speed, two model sets that take long to load."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.config.loader import load_workspace
from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.store import Store
from comfyui_agent.usecases.forecasts import Forecasts
from report import Line, at_most
from sizes import size
from support.graphs import sampled
from support.servers import simulator
from working import Work, fresh_work, unix

JOBS = size(100, 8)
MEMBERS = size(30, 3)
SPEEDS = size((1.0, 2.0), (0.2, 0.4))
LOADS = {"ink.safetensors": size(4.0, 0.2), "oil.safetensors": size(7.0, 0.4)}
SPREAD = 0.2
LOOK_SECONDS = size(2.0, 0.5)
BATCH = "forecast"
WHY = "the order of work, or the time that it took, was another than was measured before"


@dataclass
class Looks:
    """What was foretold when, and what the rate of arrivals would have said."""

    foretold: list[tuple[float, float]] = field(default_factory=list)
    by_rate: list[tuple[float, float]] = field(default_factory=list)

    def error(self, found: list[tuple[float, float]], end: float) -> float:
        """The median of |foretold - came| / came; infinite if nothing was foretold."""
        errors = [abs(seconds - (end - at)) / (end - at) for at, seconds in found if end - at > 0]
        return statistics.median(errors) if errors else math.inf


async def queue(store: Store) -> None:
    """Jobs of both model sets at random; a batch of them is in the middle of the queue."""
    chance, template = random.Random(18), Template.of(sampled(next(iter(LOADS)), "bench", seed=1, steps=4))

    def job(number: int, **facts: object) -> NewJob:
        inputs = {"1.ckpt_name": chance.choice(list(LOADS)), "5.seed": number}
        return NewJob(f"job_{number:03}.yaml", "T2I", "wf", template, inputs, **facts)  # type: ignore[arg-type]

    first = (JOBS - MEMBERS) // 2
    await store.run(ops.submit_jobs, [job(number) for number in range(first)])
    await store.run(ops.create_batch, NewBatch(BATCH, BATCH, BatchKind.SWEEP), None)
    members = [job(first + index, batch_id=BATCH, batch_index=index) for index in range(MEMBERS)]
    await store.run(ops.fill_batch, members)
    await store.run(ops.open_batch, BATCH)
    await store.run(ops.submit_jobs, [job(number) for number in range(first + MEMBERS, JOBS)])


async def follow(work: Work, agent: subprocess.Popen[bytes]) -> list[Line]:
    store, began = open_store(work.database), time.time()
    looks = {"queue": Looks(), "batch": Looks()}
    try:
        while agent.poll() is None:
            batch = await store.run(ops.find_batch, BATCH)
            counts = await store.run(ops.count_jobs)
            forecasts = Forecasts(store, load_workspace(work.root, {}))
            for name, left, done, of in (
                ("queue", counts.pending + counts.processing, counts.done, None),
                ("batch", batch.pending + batch.processing, batch.done, batch),  # type: ignore[union-attr]
            ):
                seconds, now = await forecasts.left(of), time.time()
                if seconds is not None and left:
                    looks[name].foretold.append((now, seconds))
                if done and left:
                    looks[name].by_rate.append((now, left * (now - began) / done))
            await asyncio.sleep(LOOK_SECONDS)
        jobs = await store.run(ops.list_jobs, limit=JOBS)
    finally:
        await store.close()
    assert len(jobs) == JOBS
    assert all(job.status is JobStatus.DONE for job in jobs)
    ends = {
        "queue": max(unix(job.end_time) for job in jobs),
        "batch": max(unix(job.end_time) for job in jobs if job.batch_id),
    }
    return [_line(name, looks[name], ends[name]) for name in looks]


def _line(name: str, looks: Looks, end: float) -> Line:
    what = f"end of the {name}, foretold {len(looks.foretold)} times in {JOBS} jobs on 2 servers, median error"
    rate = looks.error(looks.by_rate, end)
    return at_most(f"{what} (by the rate of arrivals {rate:.2f})", 0.2, looks.error(looks.foretold, end), why=WHY)


def measure() -> list[Line]:
    with tempfile.TemporaryDirectory() as base, fresh_work() as work, ExitStack() as stack:
        urls = []
        for number, seconds in enumerate(SPEEDS):
            flags = ["--render-seconds", f"lognormal:{seconds}:{SPREAD}", "--seed", str(number)]
            for name, load in LOADS.items():
                flags += ["--models", name, "--model-load-seconds", f"{name}={load}"]
            server = simulator(Path(base) / str(number), *flags).start()
            stack.callback(server.kill)
            urls.append(server.url)
        asyncio.run(_queued(work))
        agent = stack.enter_context(work.agent(urls[0], "--server", urls[1], "--until-idle"))
        return asyncio.run(follow(work, agent))


async def _queued(work: Work) -> None:
    store = open_store(work.database)
    await queue(store)
    await store.close()
