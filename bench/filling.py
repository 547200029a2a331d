"""Many rows: how fast they are accepted, and whether those that are there slow down the next lease."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from bare import trivial
from comfyui_agent.domain.jobs import NewJob, Template
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store
from comfyui_agent.store.leases import QueueFront, Route
from comfyui_agent.store.records import Window
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.session import QUERIES
from comfyui_agent.store.store import Store
from pairs import PAIRS, Pairs
from report import Line, at_least, at_most
from sizes import size

RUNS = size(7, 1)
CHUNK = size(5_000, 50)
CHUNKS = 4
SERVER = "http://127.0.0.1:8188"
FINISHED, PENDING, WAITING = size(1_000_000, 300), size(100_000, 100), size(50_000, 50)
FEW = size(1_000, 100)
LEASES = size(40, 3)
OURS, OTHERS = "ours", "others"
"""The needs of rows."""

FILL_JOBS = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, run_count, fence, created_at, start_time,
    end_time, duration, hold, next_attempt_at, template_hash, inputs, outputs, server, needs)
SELECT :kind || '_' || n || '.yaml', 'T2I', 'wf', :priority, :status, :runs, :runs,
    strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day'),
    iif(:runs, strftime('%Y-%m-%d %H:%M:%f', 1700000000 + n * 0.02, 'unixepoch'), NULL),
    iif(:runs, strftime('%Y-%m-%d %H:%M:%f', 1700000001 + n * 0.02, 'unixepoch'), NULL), iif(:runs, 1.0, NULL),
    :hold, iif(:hold IS NULL, NULL, strftime('%Y-%m-%d %H:%M:%f', 'now', (3600 + n % 3600) || ' seconds')),
    'none', '{"1.color": ' || n || '}', iif(:runs, '["jobs/finished/' || n || '.png"]', NULL),
    iif(:runs, :server, NULL), :needs || iif(:kinds > 1, n % :kinds, '')
FROM numbers
"""
FILL_ATTEMPTS = """
INSERT INTO attempts (job_id, number, server, prompt_id, worker_id, started_at, ended_at, outcome)
SELECT id, 1, server, lower(hex(randomblob(16))), 'before', start_time, end_time, 'done'
FROM jobs WHERE status = 'done'
"""


async def bulk(folder: Path, run: int) -> tuple[float, float]:
    """Rows a second, from the jobs in memory to the last commit; and as many as a second of processor time makes."""
    store = open_store(folder / f"bulk{run}.db")
    template = Template.of(trivial("picture"))
    jobs = [NewJob(f"job_{n:06}.yaml", "T2I", "wf", template, {"1.color": n}) for n in range(CHUNK * CHUNKS)]
    started, worked = time.perf_counter(), time.process_time()
    for first in range(0, len(jobs), CHUNK):
        await store.run(ops.submit_jobs, jobs[first : first + CHUNK])
    seconds, working = time.perf_counter() - started, time.process_time() - worked
    assert (await store.run(ops.count_jobs)).pending == len(jobs)
    await store.close()
    return len(jobs) / seconds, len(jobs) / working


def measure_bulk() -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        runs = [asyncio.run(bulk(Path(folder), run)) for run in range(RUNS)]
    rates = [rate for rate, _ in runs]
    what = f"queue: bulk submit in chunks of {CHUNK:,}, median of {RUNS}, {min(rates):,.0f} to {max(rates):,.0f}"
    alone = statistics.median(rate for _, rate in runs)
    why = f"a second of processor time makes {alone:,.0f}; the rest is waiting for the disk and for other programs"
    return [at_least(what, 20_000, statistics.median(rates), " rows/s", why=why)]


def fill(path: Path, *, finished: int, pending: int, waiting: int, others: int = 0, kinds: int = 1) -> None:
    """A database of that many jobs, made without the store: the triggers that count are put back at the end.

    `others` wait in front of all that is pending, for another server, with so many kinds of needs.
    """
    migrate_store(path)
    database = connect(path, wait=lambda seconds: seconds < 10)
    database.execute("PRAGMA synchronous = off; PRAGMA cache_size = -400000; BEGIN")
    apart = "type = 'trigger' OR (type = 'index' AND tbl_name IN ('jobs', 'attempts') AND sql IS NOT NULL)"
    kept = database.execute(f"SELECT type, name, sql FROM sqlite_schema WHERE {apart}").fetchall()
    for kind, name, _ in kept:
        database.execute(f"DROP {kind} {name}")
    _fill_jobs(database, "waiting", waiting, priority=0, status="pending", runs=0, hold="backoff")
    _fill_jobs(database, "other", others, priority=50, status="pending", runs=0, hold=None, needs=OTHERS, kinds=kinds)
    _fill_jobs(database, "done", finished, priority=50, status="done", runs=1, hold=None)
    _fill_jobs(database, "pending", pending, priority=50, status="pending", runs=0, hold=None)
    database.execute(FILL_ATTEMPTS)
    for _, _, text in kept:
        database.execute(text)
    database.execute(QUERIES["recount"])
    database.execute("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def _fill_jobs(database: apsw.Connection, name: str, count: int, **facts: object) -> None:
    if count:
        every = {"count": count, "kind": name, "server": SERVER, "needs": OURS, "kinds": 1}
        database.execute(FILL_JOBS, {**every, **facts})


async def lease_once(store: Store, route: Route | None = None, front: QueueFront | None = None) -> float:
    """Milliseconds that one lease takes; the job is completed afterwards, so that each lease finds the same."""
    window = Window(SERVER, 2)
    prompt_ids = [mint_prompt_id()]
    started = time.perf_counter()
    leased = await store.run(ops.lease_jobs, "bench", window, prompt_ids, 30.0, route=route, front=front)
    milliseconds = (time.perf_counter() - started) * 1000
    assert leased[0].needs == OURS, leased
    await store.run(ops.complete_job, leased[0].lease, [], 0.1)
    return milliseconds


async def lease_pairs(
    stores: Sequence[Store], route: Route | None = None, fronts: Sequence[QueueFront | None] = (None, None)
) -> Pairs:
    """Milliseconds of a lease in two databases in turn; they are closed afterwards."""
    many, few = stores
    front = dict(zip(stores, fronts, strict=True))
    found = Pairs()
    for pair in range(-1, PAIRS):
        taken: dict[Store, list[float]] = {many: [], few: []}
        for number in range(LEASES):
            for store in (many, few) if (pair + number) % 2 else (few, many):
                taken[store].append(await lease_once(store, route, front[store]))
        if pair >= 0:
            found.add(statistics.median(taken[many]), statistics.median(taken[few]))
    for store in stores:
        await store.close()
    return found


def measure_leases() -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        many, few = Path(folder) / "many.db", Path(folder) / "few.db"
        fill(many, finished=FINISHED, pending=PENDING, waiting=WAITING)
        fill(few, finished=0, pending=FEW, waiting=0)

        async def run() -> Pairs:
            return await lease_pairs([open_store(many), open_store(few)])

        found = asyncio.run(run())
    sizes = f"{FINISHED:,} finished, {PENDING:,} pending and {WAITING:,} waiting in front"
    what = f"queue: one lease among {sizes} against {FEW:,} pending, {found.seen(' ms', 2)}"
    why = "a lease looks at rows that it does not take"
    return [at_most(what, 2.0, found.ratio, why=why)]


def measure() -> list[Line]:
    return measure_bulk() + measure_leases()


if __name__ == "__main__":
    for line in measure():
        print(line.text())
