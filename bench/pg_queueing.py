"""Submit, lease, complete on PostgreSQL, each on disk before it returns: against bare psycopg, and other queues."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from bare import trivial
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store
from comfyui_agent.store.port import SHARED_QUERIES, load_queries
from comfyui_agent.store.postgres import session as postgres_session
from comfyui_agent.store.postgres.connection import Place
from comfyui_agent.store.postgres.session import QUERIES, VALUE, PostgresSession, _bound
from comfyui_agent.store.records import Window
from pairs import measure_pairs
from pg_server import Postgres, postgres
from queueing import LEASE_SECONDS, PAYLOAD, SERVER, WORKER, Drive
from report import Line, at_least
from sizes import QUICK, size

CALLERS = (1, 16)
AGENTS = 8
"""How many agents share the callers where there are many. One agent has one connection that writes; the others have one
for each caller."""
JOBS = size(400, 16)
WINDOW = 4 * max(CALLERS)
"""Jobs in work at a server at most."""
WHY = "E3 keeps states, leases, attempts, events and counts of a job where others keep a row or two"

Cycle = Callable[[str], Awaitable[None]]
"""Submits a job of this name, takes one, and ends it."""


async def drive(callers: int, cycle: Cycle) -> float:
    """Jobs a second of callers that each go through the cycle over and over."""

    async def call(caller: int) -> None:
        for number in range(JOBS // callers):
            await cycle(f"job_{caller}_{number}")

    started = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(callers)))
    return JOBS // callers * callers / (time.perf_counter() - started)


async def by_store(url: str, callers: int, agents: int = 1) -> Drive:
    """Callers who share the stores of so many agents: a store has one connection that writes."""
    stores = [open_store(url) for _ in range(agents)]
    template = Template.of(trivial("picture"))

    async def cycle(name: str) -> None:
        number = int(name.split("_")[1]) % agents
        store, server = stores[number], Window(f"{SERVER}/{number}", WINDOW)
        await store.run(ops.submit_jobs, [NewJob(name, "T2I", "wf", template, json.loads(PAYLOAD))])
        while not (found := await store.run(ops.lease_jobs, WORKER, server, [mint_prompt_id()], LEASE_SECONDS)):
            pass  # others took what was there when it looked
        await store.run(ops.complete_job, found[0].lease, [f"jobs/finished/{name}.png"], 0.02)

    drivers: list[Any] = [store.driver for store in stores]
    before = sum(driver.commits for driver in drivers)
    rate = await drive(callers, cycle)
    commits = sum(driver.commits for driver in drivers) - before
    assert (await stores[0].run(ops.count_jobs)).done == JOBS // callers * callers
    for store in stores:
        await store.close()
    return Drive(rate, commits)


TEXTS = load_queries(SHARED_QUERIES, Path(postgres_session.__file__).parent / "queries")
Statement = tuple[Any, Any]
Steps = list[list[Statement]]


@dataclass
class Recording:
    """What the store executes, transaction by transaction. It is recorded, not written down here."""

    steps: Steps

    @contextmanager
    def on(self) -> Any:
        begin, send = PostgresSession.begin, PostgresSession._send

        def begun(session: Any, statement: bytes, **options: Any) -> None:
            if statement == b"BEGIN":
                self.steps.append([])
            begin(session, statement, **options)

        def sent(session: Any, name: str, values: Any, problem: Any = None) -> Any:
            if self.steps:
                text = VALUE.sub(r"%(\1)s", TEXTS[name].replace("%", "%%"))
                self.steps[-1].append((text, {each: _bound(values[each]) for each in QUERIES[name].names}))
            return send(session, name, values, problem)

        with mock.patch.object(PostgresSession, "begin", begun), mock.patch.object(PostgresSession, "_send", sent):
            yield


async def record(url: str) -> Steps:
    """The statements of as many jobs, in the order of one caller after another."""
    recording = Recording([])
    with recording.on():
        await by_store(url, 1)
    return [step for step in recording.steps if len(step) > 1]


def by_statements(url: str, steps: Steps, commits: int) -> float:
    """The same statements in a plain loop on one connection, spread over as many commits; jobs a second."""
    migrate_store(url)
    connection = Place(url).connect()
    cursor = connection.cursor()
    per_commit, committed, is_open = len(steps) / commits, 0, False
    started = time.perf_counter()
    for number, step in enumerate(steps, 1):
        if not is_open:
            cursor.execute("BEGIN")
            is_open = True
        for statement, values in step:
            cursor.execute(statement, values)
            if cursor.description:
                cursor.fetchall()
        if number >= (committed + 1) * per_commit or number == len(steps):
            cursor.execute("COMMIT")
            committed, is_open = committed + 1, False
    seconds = time.perf_counter() - started
    done = cursor.execute("SELECT count(*) FROM jobs WHERE status = 'done'").fetchone()
    assert done == (JOBS,), done
    connection.close()
    return JOBS / seconds


async def by_procrastinate(url: str, callers: int) -> float:
    """defer, fetch, finish, with a registered worker whose heartbeat would give its jobs back, and a retry strategy."""
    import procrastinate
    from procrastinate.jobs import Status

    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=callers, max_size=callers)
    app = procrastinate.App(connector=connector)

    @app.task(queue="bench", retry=procrastinate.RetryStrategy(max_attempts=3, wait=15))
    async def render(**_: Any) -> None: ...

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        manager = app.job_manager
        worker = await manager.register_worker()

        async def cycle(name: str) -> None:
            await render.defer_async(name=name, inputs=json.loads(PAYLOAD))
            while (job := await manager.fetch_job(["bench"], worker)) is None:
                pass  # others took what was there when it looked
            await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)

        async def beat() -> None:
            while True:
                await manager.update_heartbeat(worker)
                await asyncio.sleep(10)

        beating = asyncio.create_task(beat())
        rate = await drive(callers, cycle)
        beating.cancel()
    return rate


async def by_pgqueuer(url: str, callers: int, *, limit: int = 0) -> float:
    """enqueue, dequeue, log. A job whose heartbeat is old is handed out again; a failed one is kept for a retry.

    `limit`: of jobs in work over all workers, 0 for none. E3 always keeps one: the window of a server.
    """
    import asyncpg
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.ports.repository import EntrypointExecutionParameter
    from pgqueuer.queries import Queries

    async with asyncpg.create_pool(url, min_size=callers, max_size=callers) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        entrypoints: Any = {"render": EntrypointExecutionParameter(concurrency_limit=limit)}
        worker: Any = uuid.uuid4()

        async def cycle(name: str) -> None:
            await queries.enqueue("render", json.dumps({"name": name, "inputs": json.loads(PAYLOAD)}).encode())
            while not (jobs := await queries.dequeue(1, entrypoints, worker, None, timedelta(seconds=LEASE_SECONDS))):
                pass
            await queries.log_jobs([(jobs[0], "successful", None)])

        return await drive(callers, cycle)


RIVALS: dict[str, Callable[[str, int], Awaitable[float]]] = {
    "procrastinate, defer, fetch and finish": by_procrastinate,
    "pgqueuer, enqueue, dequeue and log, with a limit of jobs in work as E3 has it": partial(by_pgqueuer, limit=WINDOW),
    "pgqueuer without a limit": by_pgqueuer,
}


def measure_with(server: Postgres, callers: int) -> list[Line]:
    drives: list[Drive] = []

    def ours(_: int, agents: int = 1) -> float:
        with server.fresh() as url:
            drives.append(asyncio.run(by_store(url, callers, agents)))
        return drives[-1].rate

    def bare(_: int) -> float:
        with server.fresh() as url:
            return by_statements(url, steps, drives[-1].commits)

    with server.fresh() as url:
        steps = asyncio.run(record(url))
    found = measure_pairs(ours, bare, warm_up=True)
    what = f"postgres: submit, lease and complete, {callers} at once"
    print(f"        {what}: measured with load {os.getloadavg()[0]:.1f}", flush=True)
    said = f"{drives[-1].commits} commits for {JOBS} jobs, {found.seen('/s')}"
    why = "the price of rows as mappings, threads and futures"
    lines = [at_least(f"{what}, against the same statements bare, {said}", 0.6, found.ratio, why=why)]
    if callers > 1:
        print(f"        {what}, shared by {AGENTS} agents: {ours(0, AGENTS):.0f}/s", flush=True)
    for name, rival in RIVALS.items() if find_spec("procrastinate") or not QUICK else ():

        def theirs(_: int, rival: Any = rival) -> float:
            with server.fresh() as url:
                return float(asyncio.run(rival(url, callers)))

        found = measure_pairs(ours, theirs)
        shown = f"{what}, against {name}, {found.seen('/s')}"
        lines.append(at_least(shown, 1.0, found.ratio, why=WHY))
    return lines


def measure() -> list[Line]:
    with postgres() as server:
        return [line for callers in CALLERS for line in measure_with(server, callers)]


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
