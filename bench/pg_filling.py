"""A PostgreSQL with a million jobs, and what finished jobs and long readers cost the next lease."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from comfyui_agent.store.connect import migrate_store, open_store
from comfyui_agent.store.leases import QueueFront
from filling import lease_pairs
from looking import DONE, FAILED, GALLERY, PENDING, PROCESSING, RARE, ROWS, WORDS
from pg_server import postgres
from report import Line, at_most
from sizes import size

FINISHED, FEW = size(1_000_000, 500), size(1_000, 200)
WORKED_OFF = (size(6_000, 50), size(60_000, 100))
"""Leases during ten minutes in which somebody reads: ten and a hundred a second."""
SERVERS = 100

FILL = """
INSERT INTO jobs (id, config_name, job_type, workflow_id, priority, status, run_count, fence, created_at, start_time,
    end_time, duration, template_hash, inputs, outputs, server, prompt_id, batch_id, batch_index, failure_class,
    error_trace, needs)
SELECT n,
    CASE kind
        WHEN 'file' THEN 'T2I_' || to_char(to_timestamp(1754742601 + n * 30), 'YYYYMMDDHH24MISS')
            || '_' || (n %% 40) || '_' || word || '.yaml'
        WHEN 'sweep' THEN word || 's_' || hash || '_' || lpad((n %% 1000)::text, 4, '0')
        ELSE 'the_' || word || '_' || hash || '_page_' || lpad((n %% 1000)::text, 3, '0')
    END,
    'T2I', CASE WHEN n %% 97 = 5 THEN 'wf_rare' ELSE 'wf_realistic_portrait' END,
    coalesce(%(priority)s::bigint, 10 + n * 31 %% 90), status,
    (status <> 'pending')::int, (status <> 'pending')::int, ended - interval '15 minutes',
    CASE WHEN status <> 'pending' THEN ended - interval '10 seconds' END,
    CASE WHEN status IN ('done', 'failed') THEN ended END, CASE WHEN status = 'done' THEN 10.0 END, 'none',
    '{"6.text": "a ' || word || ' in the rain, oil on canvas, warm light", "3.seed": ' || n || '}',
    CASE WHEN status = 'done' THEN '["jobs/finished/image/' || n || '.png"]' END,
    CASE WHEN status <> 'pending' THEN 'http://gpu' || (n %% 4) || ':8188' END,
    CASE WHEN status <> 'pending' THEN md5(n::text) END,
    CASE WHEN kind <> 'file' THEN kind || '_' || lpad(to_hex(n / 1000), 8, '0') END,
    CASE WHEN kind <> 'file' THEN n %% 1000 END,
    CASE WHEN status = 'failed' THEN 'execution' END,
    CASE WHEN status = 'failed' THEN 'execution: boom at node 3 (KSampler)' END, 'ours'
FROM (
    SELECT n, CASE WHEN n > %(rows)s - %(processing)s THEN 'processing'
            WHEN n > %(rows)s - %(processing)s - %(pending)s THEN 'pending'
            WHEN n %% 91 = 7 AND n <= 91 * %(failed)s THEN 'failed' ELSE 'done' END AS status,
        CASE WHEN n %% 10 < 5 THEN 'file' WHEN n %% 10 < 9 THEN 'sweep' ELSE 'book' END AS kind,
        CASE WHEN n %% 250000 = 17 THEN %(rare)s
            ELSE (%(words)s::text[])[1 + n * 7919 %% cardinality(%(words)s::text[])] END
            AS word,
        lpad(to_hex(n / 1000 * 2654435761 %% 4294967296), 8, '0') AS hash,
        now() - (%(rows)s - %(pending)s - n) * interval '20 milliseconds' AS ended
    FROM generate_series(1, %(rows)s::bigint) AS n) AS shaped
"""
FILL_REST = """
INSERT INTO attempts (job_id, number, server, prompt_id, worker_id, started_at, ended_at, outcome)
SELECT id, 1, server, prompt_id, 'before', start_time, end_time, nullif(status, 'processing')
FROM jobs WHERE status <> 'pending';
INSERT INTO batches (id, name, kind, status, created_at)
SELECT batch_id, batch_id, split_part(batch_id, '_', 1),
    CASE WHEN bool_and(status IN ('done', 'failed')) THEN 'complete' ELSE 'active' END, min(created_at)
FROM jobs WHERE batch_id IS NOT NULL GROUP BY batch_id;
INSERT INTO endings SELECT date_bin('10 seconds', end_time, 'epoch'), status, count(*) FROM jobs
WHERE end_time > now() - interval '1 day' GROUP BY 1, 2;
DELETE FROM job_counts;
INSERT INTO job_counts SELECT status, count(*) FROM jobs GROUP BY status
UNION ALL SELECT 'attention', count(*) FROM jobs AS job WHERE e3_needs_attention(job);
SELECT setval(pg_get_serial_sequence('jobs', 'id'), (SELECT max(id) FROM jobs));
"""
WORK_OFF = """
DO $$
DECLARE job record;
BEGIN
    FOR job IN SELECT id, row_number() OVER (ORDER BY id) AS number FROM jobs
        WHERE status = 'pending' ORDER BY id LIMIT {jobs}
    LOOP
        UPDATE jobs SET status = 'processing', worker_id = 'other', server = 'http://gpu' || job.number % {servers},
            fence = fence + 1, start_time = e3_now() WHERE id = job.id;
        INSERT INTO attempts (job_id, number, server, prompt_id) VALUES
            (job.id, 1, 'http://gpu' || job.number % {servers}, gen_random_uuid());
        UPDATE jobs SET status = 'done', end_time = e3_now(), worker_id = NULL WHERE id = job.id;
        UPDATE attempts SET outcome = 'done', ended_at = e3_now() WHERE job_id = job.id;
        IF job.number % 500 = 0 THEN COMMIT; END IF;
    END LOOP;
END $$
"""


def fill(
    url: str, *, rows: int, pending: int, failed: int = 0, processing: int = 0, priority: int | None = None
) -> None:
    """Jobs of every kind, the last hours at 50 a second, made without triggers and indexes, which are put back."""
    migrate_store(url)
    counts: Any = {"priority": priority, "rows": rows, "pending": pending, "failed": failed, "processing": processing}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica; SET maintenance_work_mem = '512MB'")
        with _without_indexes(connection):
            connection.execute(FILL, {**counts, "rare": RARE, "words": list(WORDS)})
            connection.execute(FILL_REST.encode())
        connection.execute("VACUUM (ANALYZE)")


@contextmanager
def _without_indexes(connection: psycopg.Connection[Any]) -> Iterator[None]:
    kept = connection.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('jobs', 'attempts') AND indexname LIKE 'idx_%' "
        "ORDER BY indexname = 'idx_attempts_at_server', indexname"
    ).fetchall()
    for name, _ in kept:
        connection.execute(f"DROP INDEX {name}".encode())
    yield
    for _, text in kept:
        connection.execute(text.encode())


def fill_million(url: str) -> None:
    fill(url, rows=ROWS, pending=PENDING, failed=FAILED, processing=PROCESSING)
    assert DONE + PENDING + FAILED + PROCESSING == ROWS
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(GALLERY.encode())
        connection.execute("VACUUM (ANALYZE)")


@contextmanager
def long_reader(url: str) -> Iterator[None]:
    """Somebody who reads all the while, as a backup does."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM (SELECT 1 FROM jobs LIMIT 1) AS one")
        yield


def work_off(url: str, jobs: int) -> None:
    """Lease and complete so many jobs, with what that leaves dead, as other agents would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(WORK_OFF.format(jobs=jobs, servers=SERVERS).encode())


def measure() -> list[Line]:
    lines = []
    with postgres() as server, server.fresh() as many, server.fresh() as few:
        pending = sum(WORKED_OFF) + 5_000
        fill(many, rows=FINISHED + pending, pending=pending, priority=50)
        fill(few, rows=FEW, pending=FEW, priority=50)

        async def pairs() -> Any:
            return await lease_pairs([open_store(many), open_store(few)], fronts=[QueueFront(), QueueFront()])

        found = asyncio.run(pairs())
        sizes = f"{FINISHED:,} finished and {pending:,} pending against {FEW:,} pending"
        load = f"load {os.getloadavg()[0]:.1f}"
        what = f"postgres: one lease among {sizes}, {found.seen(' ms', 2)}, {load}"
        lines.append(at_most(what, 3.0, found.ratio, why="a lease looks at rows that it does not take"))
        with long_reader(many):
            for jobs in WORKED_OFF:
                work_off(many, jobs)
                found = asyncio.run(pairs())
                what = f"postgres: the same after {jobs:,} more were worked off while somebody read"
                why = "index entries of leased jobs lie in front"
                load = f"load {os.getloadavg()[0]:.1f}"
                lines.append(at_most(f"{what}, {found.seen(' ms', 2)}, {load}", 3.0, found.ratio, why=why))
    return lines


if __name__ == "__main__":
    for line in measure():
        print(line.text(), flush=True)
