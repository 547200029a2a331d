"""Fifty idle agents on one PostgreSQL: what they ask meanwhile, and how soon a new job is at a server."""

from __future__ import annotations

import asyncio
import os
import time

from bare import trivial
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store
from pg_agents import Fleet, fleet
from pg_server import postgres
from report import Line, at_most, p95
from sizes import size
from support.postgres import execute

AGENTS, SERVERS = size(50, 3), 2
IDLE_SECONDS = size(40.0, 2.0)
JOBS, PAUSE = size(40, 3), size(1.0, 0.2)
COMMITS = "SELECT xact_commit + xact_rollback AS made FROM pg_stat_database WHERE datname = current_database()"


async def submit(url: str, agents: Fleet) -> list[float]:
    """Seconds from the call that submits a job, in this process, to its prompt at a server."""
    store = open_store(url)
    template, submitted = Template.of(trivial("picture")), {}
    for number in range(JOBS):
        began = time.time()
        (job_id,) = await store.run(
            ops.submit_jobs, [NewJob(f"job_{number}", "T2I", "wf", template, {"1.color": number})]
        )
        submitted[job_id] = began
        await asyncio.sleep(PAUSE)
    await asyncio.sleep(2)
    posted = dict(agents.ask()["posts"])
    prompts = {row["prompt_id"]: row["job_id"] for row in execute(url, "SELECT prompt_id, job_id FROM attempts")}
    await store.close()
    taken = {prompts[prompt_id]: at for prompt_id, at in posted.items()}
    assert len(taken) == JOBS, f"{len(taken)} of {JOBS} jobs came to a server"
    return [taken[job_id] - began for job_id, began in submitted.items()]


def measure() -> list[Line]:
    with postgres() as server, server.fresh() as url:
        migrate_store(url)
        with fleet(url, AGENTS, SERVERS, 0.05) as agents:
            agents.ask()
            execute(url, "SELECT 1")
            _settle(url)
            before, commits, began = agents.ask()["statements"], execute(url, COMMITS)[0]["made"], time.monotonic()
            time.sleep(IDLE_SECONDS)
            passed = time.monotonic() - began
            statements = (agents.ask()["statements"] - before) / passed
            rate = (execute(url, COMMITS)[0]["made"] - commits) / passed
            latencies = asyncio.run(submit(url, agents))
    who = f"{AGENTS} idle agents with {SERVERS} servers each, load {os.getloadavg()[0]:.1f}"
    said = f"{statements:.0f} statements/s with BEGIN and COMMIT"
    middle = sorted(latencies)[len(latencies) // 2] * 1000
    return [
        at_most(f"postgres: transactions of {who}, {said}", 100, rate, "/s", why="they ask although nothing happens"),
        at_most(
            f"postgres: new job to prompt, {who}, p95 of {JOBS}, median {middle:.0f}", 250, p95(latencies) * 1000, " ms"
        ),
    ]


def _settle(url: str) -> None:
    """Wait until every agent has started."""
    until = time.monotonic() + 120
    while execute(url, "SELECT count(*) AS agents FROM agents")[0]["agents"] < AGENTS:
        assert time.monotonic() < until, "the agents did not start"
        time.sleep(0.5)
    time.sleep(size(10.0, 0.5))


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
