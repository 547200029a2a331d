"""Submit, lease, complete: each on disk before it returns. Against bare SQLite, and against other queues."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bare import trivial
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store
from comfyui_agent.store.records import Window
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.sqlite.session import SqliteSession
from comfyui_agent.store.store import Store
from pairs import measure_pairs
from report import Line, at_least
from sizes import QUICK, size

CALLERS = 16
EACH = size(60, 2)
JOBS = CALLERS * EACH
STEPS = ("submit", "lease", "complete")
SERVER = "http://127.0.0.1:8188"
WORKER = "bench"
LEASE_SECONDS = 30.0
PAYLOAD = json.dumps({"1.color": 0x123456, "2.filename_prefix": "picture"})


@contextmanager
def fresh_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        yield Path(folder)


@dataclass
class Drive:
    """One run of the store: jobs a second, and how many commits it took."""

    rate: float
    commits: int


def by_store() -> Drive:
    """Callers that each submit a job, lease one and complete it, over and over, on one store."""

    async def run(folder: Path) -> Drive:
        driver = SqliteDriver.open(folder / "queue.db")
        store = Store(driver)
        template = Template.of(trivial("picture"))
        window = Window(SERVER, CALLERS)

        async def call(caller: int) -> None:
            for number in range(EACH):
                name = f"job_{caller}_{number}"
                await store.run(ops.submit_jobs, [NewJob(name, "T2I", "wf", template, json.loads(PAYLOAD))])
                (leased,) = await store.run(ops.lease_jobs, WORKER, window, [mint_prompt_id()], LEASE_SECONDS)
                await store.run(ops.complete_job, leased.lease, [f"jobs/finished/{name}.png"], 0.02)

        before = driver.commits
        started = time.perf_counter()
        await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
        seconds = time.perf_counter() - started
        commits = driver.commits - before
        assert (await store.run(ops.count_jobs)).done == JOBS
        await store.close()
        return Drive(JOBS / seconds, commits)

    with fresh_folder() as folder:
        return asyncio.run(run(folder))


Statement = tuple[str, Any]
Steps = list[list[Statement]]


@cache
def steps_of_the_store() -> Steps:
    """What the store executes for each call, in the order of `by_statements`. It is recorded, not written down here."""
    steps: Steps = []

    def note(_cursor: Any, statement: str, values: Any) -> bool:
        if statement == "BEGIN IMMEDIATE":
            steps.append([])
        elif statement != "COMMIT" and database.in_transaction:
            steps[-1].append((statement, values))
        return True

    async def run(store: Store) -> None:
        template = Template.of(trivial("picture"))
        window = Window(SERVER, CALLERS)
        for number in range(EACH):
            names = [f"job_{caller}_{number}" for caller in range(CALLERS)]
            for name in names:
                await store.run(ops.submit_jobs, [NewJob(name, "T2I", "wf", template, json.loads(PAYLOAD))])
            held = [await store.run(ops.lease_jobs, WORKER, window, [mint_prompt_id()], LEASE_SECONDS) for _ in names]
            for name, (leased,) in zip(names, held, strict=True):
                await store.run(ops.complete_job, leased.lease, [f"jobs/finished/{name}.png"], 0.02)
        await store.close()

    with fresh_folder() as folder:
        driver = SqliteDriver.open(folder / "queue.db")
        database = driver._writer._connection.database
        database.exec_trace = note
        asyncio.run(run(Store(driver)))
    assert len(steps) == JOBS * len(STEPS)
    return steps


def by_statements(commits: int) -> float:
    """The same statements in a plain loop on one connection, spread over as many commits; jobs a second."""
    steps = steps_of_the_store()
    with fresh_folder() as folder:
        migrate_store(folder / "queue.db")
        database = connect(folder / "queue.db", wait=lambda seconds: seconds < 10)
        SqliteSession(database)  # values are bound as the store binds them
        committing = Committing(database, len(steps) / commits)

        def run(step: list[Statement]) -> None:
            for statement, values in step:
                database.execute(statement, values).fetchall()

        started = time.perf_counter()
        for step in steps:
            committing.around(lambda step=step: run(step))
        committing.end()
        seconds = time.perf_counter() - started
        assert database.execute("SELECT count(*) FROM jobs WHERE status = 'done'").get == JOBS
        database.close()
        return JOBS / seconds


class Committing:
    """Spreads steps evenly over transactions of so many steps each, on average."""

    def __init__(self, database: Any, steps_per_commit: float) -> None:
        self._database = database
        self._per_commit = steps_per_commit
        self._steps = 0
        self._commits = 0

    def around(self, step: Callable[[], None]) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
        step()
        self._steps += 1
        if self._steps >= (self._commits + 1) * self._per_commit:
            self.end()

    def end(self) -> None:
        if self._database.in_transaction:
            self._database.execute("COMMIT")
            self._commits += 1


def by_threads(cycle: Callable[[], None]) -> float:
    """Cycles a second of as many threads as there are callers."""
    gate = threading.Barrier(CALLERS + 1)
    troubles: list[BaseException] = []

    def call() -> None:
        gate.wait()
        try:
            for _ in range(EACH):
                cycle()
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)

    threads = [threading.Thread(target=call) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    gate.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if troubles:
        raise troubles[0]
    return JOBS / seconds


def synchronous(connection: sqlite3.Connection) -> str:
    level = connection.execute("PRAGMA synchronous").fetchone()[0]
    return f"synchronous={('off', 'normal', 'full', 'extra')[level]}"


def by_huey() -> tuple[float, str]:
    """enqueue, dequeue: the job is deleted when it is handed out, and lost with its worker."""
    from huey import SqliteHuey

    with fresh_folder() as folder:
        queue = SqliteHuey(filename=str(folder / "huey.db"), fsync=True).storage
        data = PAYLOAD.encode()

        def cycle() -> None:
            queue.enqueue(data)
            assert queue.dequeue() is not None

        rate = by_threads(cycle)
        offered = synchronous(queue.conn)
        queue.close()
        return rate, f"huey, enqueue and dequeue, {offered}, a job is lost with its worker"


def by_litequeue() -> tuple[float, str]:
    """As it comes: the disk is not waited for."""
    rate, offered = _by_litequeue("normal")
    return rate, f"{offered} as it comes: a power cut loses commits"


def by_durable_litequeue() -> tuple[float, str]:
    """With the durability of E3, which it does not offer, set behind its back."""
    rate, offered = _by_litequeue("full")
    return rate, f"{offered} set from outside"


def _by_litequeue(level: str) -> tuple[float, str]:
    """put, pop, done. One connection may not be used by two threads at once, so a lock stands before it."""
    from litequeue import LiteQueue

    with fresh_folder() as folder:
        queue = LiteQueue(folder / "lite.db")
        queue.conn.execute(f"PRAGMA synchronous = {level}")
        lock = threading.Lock()

        def cycle() -> None:
            with lock:
                queue.put(PAYLOAD)
            with lock:
                message = queue.pop()
            with lock:
                queue.done(message.message_id)

        rate = by_threads(cycle)
        offered = synchronous(queue.conn)
        queue.close()
        return rate, f"litequeue, put, pop and done, {offered}"


def by_persist_queue() -> tuple[float, str]:
    """put, get, ack."""
    from persistqueue import SQLiteAckQueue

    with fresh_folder() as folder:
        queue = SQLiteAckQueue(str(folder), multithreading=True)

        def cycle() -> None:
            queue.put(PAYLOAD)
            item = queue.get(raw=True)
            queue.ack(id=item["pqid"])

        rate = by_threads(cycle)
        offered = synchronous(queue._putter)
        queue.close()
        return rate, f"persist-queue, put, get and ack, {offered}"


def measure() -> list[Line]:
    lines = []
    drives: list[Drive] = []

    def ours(_: int) -> float:
        drives.append(by_store())
        return drives[-1].rate

    found = measure_pairs(ours, lambda _: by_statements(drives[-1].commits), warm_up=True)
    commits = drives[-1].commits
    what = f"queue: submit, lease and complete at {CALLERS} callers against the same statements bare"
    why = "the price of savepoints, rows as mappings, threads and futures"
    lines.append(at_least(f"{what}, {commits} commits for {JOBS} jobs, {found.seen('/s')}", 0.7, found.ratio, why=why))
    rivals = (by_huey, by_litequeue, by_durable_litequeue, by_persist_queue)
    for rival in () if QUICK and not find_spec("huey") else rivals:  # only `make bench` installs them
        said = ""

        def theirs(_: int, rival: Callable[[], tuple[float, str]] = rival) -> float:
            nonlocal said
            rate, said = rival()
            return rate

        found = measure_pairs(ours, theirs)
        what = f"queue: the same, synchronous=full, against {said}"
        why = (
            "E3 keeps states, leases, attempts and events of a job: thirteen statements where others run three or four"
        )
        lines.append(at_least(f"{what}, {found.seen('/s')}", 1.0, found.ratio, why=why))
    return lines


if __name__ == "__main__":
    for line in measure():
        print(line.text())
