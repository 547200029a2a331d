"""A million jobs, and people who look at them: how long each page of the store takes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store
from comfyui_agent.store.job_orders import CursorPlace, cursor_of
from comfyui_agent.store.job_pages import JobFilter, Rated
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.sqlite.session import QUERIES
from comfyui_agent.store.store import Store
from report import Line, at_most, p95
from sizes import size

DONE, PENDING, FAILED, PROCESSING = size(900_000, 1_850), size(90_000, 100), size(9_990, 20), size(10, 2)
ROWS = DONE + PENDING + FAILED + PROCESSING
GOAL = 100.0
LOOKS = size(40, 2)
WHY = "rows are looked at that are not shown"
RARE, ABSENT = "zanzibar", "dragonfly"
WORDS = (
    *("knight", "dragon", "castle", "forest", "river", "portrait", "night", "city", "robot", "harbor"),
    *("queen", "mountain", "garden", "street", "ocean", "desert", "winter", "bridge", "lantern", "fox"),
)

FILL_JOBS = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows),
shaped(n, status, kind, word, hash, ended) AS (
    SELECT n,
        CASE WHEN n > :rows - :processing THEN 'processing' WHEN n > :rows - :processing - :pending THEN 'pending'
            WHEN n % 91 = 7 AND n <= 91 * :failed THEN 'failed' ELSE 'done' END,
        CASE WHEN n % 10 < 5 THEN 'file' WHEN n % 10 < 9 THEN 'sweep' ELSE 'book' END,
        iif(n % 250000 = 17, :rare, (SELECT word FROM words WHERE words.n = (numbers.n * 7919) % :words)),
        printf('%08x', n / 1000 * 2654435761 % 4294967296),
        julianday('now') - (:rows - :pending - n) * 0.02 / 86400
    FROM numbers)
INSERT INTO jobs (id, config_name, job_type, workflow_id, priority, status, run_count, fence, created_at, start_time,
    end_time, duration, template_hash, inputs, outputs, server, prompt_id, batch_id, batch_index, failure_class,
    error_trace)
SELECT n,
    CASE kind
        WHEN 'file' THEN 'T2I_' || strftime('%Y%m%d%H%M%S', 1754742601 + n * 30, 'unixepoch')
            || '_' || (n % 40) || '_' || word || '.yaml'
        WHEN 'sweep' THEN word || 's_' || hash || '_' || printf('%04d', n % 1000)
        ELSE 'the_' || word || '_' || hash || '_page_' || printf('%03d', n % 1000)
    END,
    'T2I', iif(n % 97 = 5, 'wf_rare', 'wf_realistic_portrait'), 10 + n * 31 % 90, status, status <> 'pending',
    status <> 'pending', strftime('%Y-%m-%d %H:%M:%f', ended - 0.01),
    iif(status = 'pending', NULL, strftime('%Y-%m-%d %H:%M:%f', ended - 0.0001)),
    iif(status IN ('done', 'failed'), strftime('%Y-%m-%d %H:%M:%f', ended), NULL),
    iif(status = 'done', 10.0, NULL), 'none',
    '{"6.text": "a ' || word || ' in the rain, oil on canvas, warm light", "3.seed": ' || n || '}',
    iif(status = 'done', '["jobs/finished/image/' || n || '.png"]', NULL),
    iif(status = 'pending', NULL, 'http://gpu' || (n % 4) || ':8188'),
    iif(status = 'pending', NULL, lower(hex(randomblob(16)))),
    iif(kind = 'file', NULL, kind || '_' || printf('%08x', n / 1000)), iif(kind = 'file', NULL, n % 1000),
    iif(status = 'failed', 'execution', NULL), iif(status = 'failed', 'execution: boom at node 3 (KSampler)', NULL)
FROM shaped
"""
FILL_REST = """
INSERT INTO attempts (job_id, number, server, prompt_id, worker_id, started_at, ended_at, outcome)
SELECT id, 1, server, prompt_id, 'before', start_time, end_time, nullif(status, 'processing')
FROM jobs WHERE status <> 'pending';
INSERT INTO batches (id, name, kind, status, created_at)
SELECT batch_id, batch_id, substr(batch_id, 1, instr(batch_id, '_') - 1),
    iif(min(status) = 'done' AND max(status) IN ('done', 'failed'), 'complete', 'active'), min(created_at)
FROM jobs WHERE batch_id IS NOT NULL GROUP BY batch_id;
INSERT INTO endings SELECT substr(end_time, 1, 18), status, count(*) FROM jobs
WHERE end_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day') GROUP BY 1, 2;
"""
GALLERY = """
INSERT INTO prompts (job_id, text) SELECT id, inputs FROM jobs
WHERE status = 'done' AND id > (SELECT max(id) FROM jobs) - 200000 ORDER BY end_time, id;
UPDATE jobs SET rating = CASE WHEN id - id / 100 * 100 = 7 THEN 1 ELSE -1 END
WHERE status = 'done' AND id - id / 100 * 100 IN (7, 8);
"""
"""Of the newest results the prompts, of all some stars."""

Look: TypeAlias = Callable[[], Awaitable[Any]]


def fill(path: Path) -> None:
    """A database of a million jobs of every kind, the last hours at 50 a second."""
    migrate_store(path)
    database = connect(path, wait=lambda seconds: seconds < 10)
    database.execute("PRAGMA synchronous = off; PRAGMA cache_size = -400000; BEGIN")
    database.execute("CREATE TEMP TABLE words (n INTEGER PRIMARY KEY, word TEXT)")
    database.executemany("INSERT INTO words VALUES (?, ?)", enumerate(WORDS))
    with _bare_tables(database):
        counts = {"rows": ROWS, "processing": PROCESSING, "pending": PENDING, "failed": FAILED}
        database.execute(FILL_JOBS, {**counts, "rare": RARE, "words": len(WORDS)})
        database.execute(FILL_REST + GALLERY)
        database.execute("INSERT INTO prompt_trigrams (rowid, text) SELECT id, text FROM prompts")
    database.execute(QUERIES["recount"])
    database.execute("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
    found = dict(database.execute("SELECT status, jobs FROM job_counts"))
    expected = {"done": DONE, "pending": PENDING, "failed": FAILED, "attention": FAILED, "processing": PROCESSING}
    assert found == expected, found
    database.close()


@contextmanager
def _bare_tables(database: apsw.Connection) -> Iterator[None]:
    """Without triggers and indexes, which are put back at the end."""
    apart = "type = 'trigger' OR (type = 'index' AND tbl_name IN ('jobs', 'attempts') AND sql IS NOT NULL)"
    kept = database.execute(f"SELECT type, name, sql FROM sqlite_schema WHERE {apart}").fetchall()
    for kind, name, _ in kept:
        database.execute(f"DROP {kind} {name}")
    yield
    for _, _, text in kept:
        database.execute(text)


async def index(store: Store) -> Line:
    """Names become searchable in parts; while one is put in, others wait to write."""
    parts = []
    while True:
        started = time.perf_counter()
        if not await ops.index_names(store):
            break
        parts.append((time.perf_counter() - started) * 1000)
    what = f"looking: one part of the index of names, p95 of {len(parts)}, {ROWS:,} jobs in {sum(parts) / 1000:.0f} s"
    return at_most(what, GOAL, p95(parts), " ms", why="others wait that long to write")


async def looks(store: Store) -> dict[str, Look]:
    """Everything that people look at, by what it is called."""

    def page(cursor: str | None = None, **wanted: Any) -> Look:
        return lambda: store.run(ops.job_page, JobFilter(**wanted), cursor)

    found: dict[str, Look] = {"overview": lambda: store.run(ops.read_overview), "first page of the queue": page()}
    for status in JobStatus:
        found[f"first page, {status}"] = page(status=status)
    for status, column, ids in (
        (JobStatus.PENDING, "priority", (ROWS - PROCESSING - PENDING // 2, ROWS - PROCESSING - 1)),
        (JobStatus.FAILED, "end_time", (7 + 91 * (FAILED // 2), 7 + 91 * 10)),
        (JobStatus.DONE, "end_time", (DONE // 2, 60)),
    ):
        for depth, number in zip(("half way", "near the end"), ids, strict=True):
            job = await _job(store, number, status)
            key = getattr(job, column)
            key = datetime.fromisoformat(key).replace(tzinfo=timezone.utc) if column == "end_time" else key
            cursor = cursor_of(status.value, CursorPlace(key, job.id))
            found[f"page {depth}, {status}"] = page(cursor, status=status)
    texts = {
        "a common word": "knight",
        "half of all names": "yaml",
        "a common beginning": "T2I_2025",
        "a rare word": RARE,
        "a word that is nowhere": ABSENT,
        "common letters that are nowhere": "_page_0_0_2025",
        "two common letters": "kn",
        "two letters that are nowhere": "zq",
    }
    for name, text in texts.items():
        found[f"search for {name}"] = page(text=text)
        found[f"search for {name}, failed"] = page(text=text, status=JobStatus.FAILED)
        found[f"search for {name}, done"] = page(text=text, status=JobStatus.DONE)
        found[f"search for {name}, of a workflow"] = page(text=text, workflow_id="wf_rare")
    found["page of a workflow"] = page(workflow_id="wf_rare")
    found["page of a workflow that is nowhere"] = page(workflow_id="wf_nowhere")
    found["page of a server that is nowhere"] = page(server="http://nowhere:8188")
    for name, text in (("a common word", "knight rain"), ("a word that is nowhere", ABSENT), ("two letters", "zq")):
        found[f"gallery, {name} of the prompt"] = page(status=JobStatus.DONE, rated=Rated.KEPT, prompt=text)
    for rated in Rated:
        found[f"gallery, {rated}"] = page(status=JobStatus.DONE, rated=rated)
        found[f"gallery, {rated}, of a workflow that is nowhere"] = page(
            status=JobStatus.DONE, rated=rated, workflow_id="wf_nowhere"
        )
    found["page of a batch"] = page(batch_id="sweep_00000100")
    found["first page of batches"] = lambda: store.run(ops.batch_page)
    found["first page of books"] = lambda: store.run(ops.batch_page, BatchKind.BOOK)
    return found


async def _job(store: Store, number: int, status: JobStatus) -> Job:
    job = await store.run(ops.find_job, str(number))
    assert job is not None
    assert job.status is status, job
    return job


async def measure_looks(place: str | Path, name: str) -> list[Line]:
    """How long each look takes, at a database that is full."""
    store = open_store(place)
    lines = [await index(store)]
    asked = await looks(store)
    taken: dict[str, list[float]] = {what: [] for what in asked}
    for _ in range(LOOKS):
        for what, look in asked.items():
            await store.run(ops.add_event, Event(EventName.SERVER_UP))  # what was read before is not remembered
            started = time.perf_counter()
            await look()
            taken[what].append((time.perf_counter() - started) * 1000)
    await store.close()
    how = f"{ROWS:,} jobs, p95 of {LOOKS}, load {os.getloadavg()[0]:.1f}"
    return lines + [
        at_most(f"{name}: {what}, {how}, least {min(each):.1f}", GOAL, p95(each), " ms", why=WHY)
        for what, each in taken.items()
    ]


def measure() -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="e3-bench-") as folder:
        fill(Path(folder) / "million.db")
        return asyncio.run(measure_looks(Path(folder) / "million.db", "looking"))


if __name__ == "__main__":
    for line in measure():
        print(line.text())
