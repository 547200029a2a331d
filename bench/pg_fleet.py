"""A thousand simulated servers and fifty agents on one PostgreSQL: are the servers busy, and what does that cost?"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from bare import trivial
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from pg_agents import PROCESSES, fleet, processor_seconds
from pg_server import Postgres, postgres
from pg_waking import COMMITS
from report import Line, at_least
from sizes import size
from support.postgres import execute

AGENTS, SERVERS = size(50, 2), size(20, 2)
RENDER_SECONDS = size(10.0, 0.5)
WARM_UP_SECONDS, WATCHED_SECONDS = size(40.0, 2.0), size(60.0, 2.0)
CHUNK = 2_000
STARTED = "SELECT count(*) AS jobs FROM attempts"


async def submit(url: str, jobs: int) -> None:
    store = open_store(url)
    template = Template.of(trivial("picture"))
    for first in range(0, jobs, CHUNK):
        names = [f"job_{number}" for number in range(first, min(first + CHUNK, jobs))]
        await store.run(ops.submit_jobs, [NewJob(name, "T2I", "wf", template, {"1.color": 1}) for name in names])
    await store.close()


def measure() -> list[Line]:
    with postgres() as server, server.fresh() as url:
        return _measure(server, url)


def _measure(server: Postgres, url: str) -> list[Line]:
    servers = AGENTS * SERVERS
    rounds = (WARM_UP_SECONDS + WATCHED_SECONDS + 60) / RENDER_SECONDS
    asyncio.run(submit(url, round(servers * (rounds + 2))))
    with fleet(url, AGENTS, SERVERS, RENDER_SECONDS) as agents:
        agents.ask()
        until = time.monotonic() + 180
        while execute(url, STARTED)[0]["jobs"] < servers:
            assert time.monotonic() < until, "the servers got no work"
            time.sleep(1)
        time.sleep(WARM_UP_SECONDS)
        before, commits, claims = agents.ask(), execute(url, COMMITS)[0]["made"], execute(url, STARTED)[0]["jobs"]
        spent, began = _spent(server), time.monotonic()
        time.sleep(WATCHED_SECONDS)
        after, passed = agents.ask(), time.monotonic() - began
        jobs = execute(url, STARTED)[0]["jobs"] - claims
        made = execute(url, COMMITS)[0]["made"] - commits
        database = (_spent(server) - spent) / passed
    busy = (after["busy"] - before["busy"]) / passed / servers
    each = (after["processor"] - before["processor"]) / max(jobs, 1) * 1000
    how = f"{servers:,} servers at {RENDER_SECONDS:g} s a render, {AGENTS} agents in {PROCESSES} processes"
    said = (
        f"{jobs / passed:.0f} claims/s, {made / passed:.0f} transactions/s, {database:.2f} cores of the database, "
        f"{each:.1f} ms of an agent's processor a job, load {os.getloadavg()[0]:.1f}"
    )
    why = "the machine is the limit: look at its load"
    return [at_least(f"postgres: busy share of {how}, {said}", 0.95, busy, why=why)]


def _spent(server: Postgres) -> float:
    if server.data is None:
        row = execute(server.url, "SHOW data_directory")[0]
        server = Postgres(server.url, Path(row["data_directory"]))
    assert server.data is not None
    return processor_seconds(int((server.data / "postmaster.pid").read_text().splitlines()[0]))


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
