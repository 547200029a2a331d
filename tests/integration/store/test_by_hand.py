"""What people type in a shell beside running agents works, and agents honour it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from comfyui_agent.domain.events import Event, EventName
from comfyui_agent.domain.failures import FailureClass
from comfyui_agent.domain.retry_policy import GiveUp, Retry
from comfyui_agent.store import operations as ops
from comfyui_agent.store.store import Store
from support.stores import (
    LEASE_SECONDS,
    WORKER,
    Database,
    Rows,
    SqliteDatabase,
    broken,
    lease,
    lease_one,
    open_attempt,
    submit_and_lease,
    submit_one,
    take_over,
    wish,
)

Typed = Callable[[str], Awaitable[Rows]]

DOCUMENTED_TABLE = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    config_name TEXT NOT NULL UNIQUE,
    job_type TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    priority INTEGER DEFAULT 50,
    status TEXT CHECK(status IN ('pending','processing','done','failed')) NOT NULL,
    retries_attempted INTEGER DEFAULT 0,
    run_count INTEGER DEFAULT 0,
    retry_limit INTEGER,
    start_time TEXT,
    end_time TEXT,
    duration REAL,
    error_trace TEXT,
    metadata TEXT,
    worker_id TEXT,
    lease_expires_at TEXT
);
CREATE INDEX IF NOT EXISTS idx_jobs_status_priority ON jobs(status, priority);
CREATE INDEX IF NOT EXISTS idx_jobs_started ON jobs(start_time);
"""

ORPHAN_RECOVERY = """
UPDATE jobs
SET status='pending', worker_id=NULL, lease_expires_at=NULL
WHERE status='processing' AND lease_expires_at < CURRENT_TIMESTAMP;
"""


@pytest.fixture
async def typed(store: Store, database: Database) -> AsyncIterator[Typed]:
    """Types something while the store writes without a pause."""
    stop = asyncio.Event()

    async def write_on() -> None:
        while not stop.is_set():
            await asyncio.gather(*(store.run(ops.add_event, Event(EventName.SERVER_UP)) for _ in range(4)))

    async def run(sql: str) -> Rows:
        return await asyncio.to_thread(database.by_hand, sql)

    before = database.commits(store)
    writing = asyncio.create_task(write_on())
    yield run
    stop.set()
    await writing
    assert database.commits(store) > before


async def test_pending_jobs_are_listed_in_the_order_in_which_they_will_run(store: Store, typed: Typed) -> None:
    await store.run(
        ops.submit_jobs,
        [wish("c", priority=90), wish("a", priority=10), wish("b", priority=10), wish("run", priority=1)],
    )
    await lease_one(store)
    rows = await typed("SELECT id, config_name, priority FROM jobs WHERE status='pending' ORDER BY priority, id;")
    assert rows == [
        {"id": 2, "config_name": "a", "priority": 10},
        {"id": 3, "config_name": "b", "priority": 10},
        {"id": 1, "config_name": "c", "priority": 90},
    ]
    assert [each.config_name for each in await lease(store, most=3)] == ["a", "b", "c"]


async def test_jobs_being_processed_are_listed_with_worker_and_lease(
    store: Store, database: Database, typed: Typed
) -> None:
    leased = await submit_and_lease(store)
    rows = await typed("SELECT id, config_name, worker_id, lease_expires_at FROM jobs WHERE status='processing';")
    database.clock.advance(LEASE_SECONDS)
    assert rows == [
        {
            "id": leased.lease.job_id,
            "config_name": "knight.yaml",
            "worker_id": WORKER,
            "lease_expires_at": database.clock.text(),
        }
    ]


async def test_finished_jobs_are_listed_newest_first(store: Store, database: Database, typed: Typed) -> None:
    for number in range(22):
        leased = await submit_and_lease(store, str(number))
        await store.run(ops.complete_job, leased.lease, [], float(number))
        database.clock.advance(0.001)
    rows = await typed(
        "SELECT id, config_name, duration FROM jobs WHERE status='done' ORDER BY end_time DESC LIMIT 20;"
    )
    assert [row["config_name"] for row in rows] == [str(number) for number in range(21, 1, -1)]
    assert rows[0]["duration"] == 21.0


async def test_failures_are_listed_with_their_last_error(store: Store, database: Database, typed: Typed) -> None:
    leased = await submit_and_lease(store)
    await store.run(ops.requeue_job, leased.lease, broken(message="first"), Retry(0.0, charged=True))
    again = await lease_one(store)
    await store.run(ops.fail_job, again.lease, broken(message="second"), GiveUp(FailureClass.EXECUTION))
    rows = await typed(
        "SELECT id, config_name, retries_attempted, run_count, error_trace\n"
        "FROM jobs\nWHERE status='failed'\nORDER BY end_time DESC;"
    )
    assert rows == [
        {
            "id": leased.lease.job_id,
            "config_name": "knight.yaml",
            "retries_attempted": 1,
            "run_count": 2,
            "error_trace": "execution: second",
        }
    ]


async def test_jobs_that_used_up_their_retries_are_listed_with_the_limit(store: Store, typed: Typed) -> None:
    for name, limit, retries in (("global", None, 2), ("own", 1, 1), ("left", None, 1), ("cancelled", 9, 0)):
        await submit_one(store, name, retry_limit=limit)
        for _ in range(retries):
            await store.run(ops.requeue_job, (await lease_one(store)).lease, broken(), Retry(0.0, charged=True))
        await store.run(ops.fail_job, (await lease_one(store)).lease, broken(), GiveUp(FailureClass.EXECUTION))
    rows = await typed(
        "SELECT id, config_name, retries_attempted, COALESCE(retry_limit, 2) AS limit_used\n"
        "FROM jobs\nWHERE status='failed' AND retries_attempted >= COALESCE(retry_limit, 2);"
    )
    assert [(row["config_name"], row["retries_attempted"], row["limit_used"]) for row in rows] == [
        ("global", 2, 2),
        ("own", 1, 1),
    ]


async def test_a_bump_by_hand_is_honoured_by_the_next_lease(store: Store, typed: Typed) -> None:
    await store.run(ops.submit_jobs, [wish("a"), wish("b"), wish("T2I_20250809123001_1_knight.yaml")])
    await lease_one(store)
    await typed("UPDATE jobs SET priority=1 WHERE config_name='T2I_20250809123001_1_knight.yaml';")
    leased = await lease(store, most=2)
    assert [each.config_name for each in leased] == ["T2I_20250809123001_1_knight.yaml", "b"]


async def test_orphans_recovered_by_hand_are_taken_over_and_live_jobs_are_left_alone(
    store: Store, database: Database, typed: Typed
) -> None:
    database.clock.advance(-3600)
    orphan = await submit_and_lease(store, "orphan")
    database.clock.advance(3600)
    alive = await submit_and_lease(store, "alive")
    await typed(ORPHAN_RECOVERY)
    jobs = {job.config_name: job.status.value for job in await store.run(ops.list_jobs)}
    assert jobs == {"orphan": "pending", "alive": "processing"}
    seen = next(each for each in await store.run(ops.open_attempts) if each.job_id == orphan.lease.job_id)
    taken = await store.run(ops.adopt_attempt, seen, "second-agent", LEASE_SECONDS)
    assert taken is not None
    assert taken.prompt_id == orphan.prompt_id
    job = await store.run(ops.find_job, "orphan")
    assert job is not None
    assert job.run_count == 1
    await store.run(ops.complete_job, alive.lease, [], None)


async def test_an_orphan_that_was_never_at_a_server_is_leased_after_the_recovery_by_hand(
    store: Store, typed: Typed
) -> None:
    await typed(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, worker_id, lease_expires_at) "
        "VALUES ('old.yaml', 'T2I', 'wf', 'processing', 'gone', '2025-08-09 12:30:01');"
    )
    assert await lease(store) == []
    await typed(ORPHAN_RECOVERY)
    assert (await lease_one(store)).config_name == "old.yaml"


async def test_a_row_with_the_documented_columns_alone_is_a_job_like_any_other(
    store: Store, database: Database, typed: Typed
) -> None:
    await typed(
        "INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, metadata) "
        "VALUES ('hand.yaml', 'T2I', 'wf_realistic_portrait', 20, 'pending', '{\"creator\": \"me\"}');"
    )
    leased = await lease_one(store)
    assert (leased.config_name, leased.template_hash, leased.inputs) == ("hand.yaml", None, None)
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True, strike=True), avoid_server=True)
    again = await lease_one(store, server="http://other:8188")
    database.clock.advance(LEASE_SECONDS + 1)
    taken = await take_over(store)
    assert taken.lease.attempt_id == again.lease.attempt_id
    await store.run(ops.complete_job, taken.lease, ["a.png"], None)
    job = await store.run(ops.find_job, "hand.yaml")
    assert job is not None
    assert (job.status, job.run_count, job.retries_attempted, job.priority) == ("done", 2, 1, 20)
    assert job.created_at is not None


async def test_a_row_of_which_everything_else_is_null_is_a_job_like_any_other(store: Store, typed: Typed) -> None:
    await typed(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status, priority, retries_attempted, run_count, fence, "
        "strikes, needs_regeneration) VALUES ('bare', 'T2I', 'wf', 'pending', NULL, NULL, NULL, NULL, NULL, NULL);"
    )
    job = await store.run(ops.find_job, "bare")
    assert job is not None
    assert (job.run_count, job.retries_attempted, job.strikes, job.needs_regeneration) == (0, 0, 0, False)
    leased = await lease_one(store)
    await store.run(ops.return_unsent, leased.lease)
    leased = await lease_one(store)
    assert (await open_attempt(store)).fence == leased.lease.fence
    await store.run(ops.requeue_job, leased.lease, broken(), Retry(0.0, charged=True, strike=True))
    again = await lease_one(store)
    assert (again.tally.retries_attempted, again.tally.strikes) == (1, 1)
    await store.run(ops.fail_job, again.lease, broken(), GiveUp(FailureClass.POISON))


@pytest.mark.parametrize("status", ["done", "failed"])
async def test_a_job_that_ended_and_is_set_to_pending_by_hand_runs_again(
    store: Store, typed: Typed, status: str
) -> None:
    leased = await submit_and_lease(store)
    if status == "done":
        await store.run(ops.claim_files, leased.lease, ["a.png"], LEASE_SECONDS)
        await store.run(ops.complete_job, leased.lease, ["a.png"], None)
    else:
        await store.run(ops.fail_job, leased.lease, broken(), GiveUp(FailureClass.EXECUTION))
    await typed("UPDATE jobs SET status='pending' WHERE config_name='knight.yaml';")
    again = await lease_one(store)
    assert again.prompt_id != leased.prompt_id
    assert await store.run(ops.claim_files, again.lease, ["a.png"], LEASE_SECONDS) == (
        ["a.png"] if status == "done" else []
    )
    await store.run(ops.complete_job, again.lease, ["a.png"], None)
    assert (await store.run(ops.count_jobs)).done == 1


@pytest.mark.sqlite_only
async def test_the_documented_statements_do_nothing_to_a_database_that_is_there(store: Store, typed: Typed) -> None:
    await submit_one(store)
    await typed(DOCUMENTED_TABLE)
    assert (await lease_one(store)).config_name == "knight.yaml"


async def test_an_unknown_status_is_refused_by_the_database(store: Store, database: Database) -> None:
    with pytest.raises(AssertionError, match=r"CHECK constraint failed|violates check constraint"):
        database.by_hand(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('x', 'T2I', 'wf', 'running');"
        )


async def test_a_name_that_is_taken_is_refused_by_the_database(store: Store, database: Database) -> None:
    await submit_one(store, "x")
    with pytest.raises(
        AssertionError, match=r"UNIQUE constraint failed: jobs\.config_name|unique constraint \"jobs_config_name"
    ):
        database.by_hand(
            "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('x', 'T2I', 'wf', 'pending');"
        )


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path)
    database.open()
    yield database
    await database.close()


async def test_the_table_has_the_documented_columns_types_and_defaults(sqlite: SqliteDatabase) -> None:
    plain = sqlite.path.with_name("documented.db")
    other = SqliteDatabase(plain.parent)
    other.path = plain
    other.by_hand(DOCUMENTED_TABLE)
    documented = other.by_hand("PRAGMA table_info(jobs)")
    assert sqlite.by_hand("PRAGMA table_info(jobs)")[: len(documented)] == documented
    assert len(documented) == 16
    await other.close()


async def test_every_column_that_was_added_may_be_left_out(sqlite: SqliteDatabase) -> None:
    added = sqlite.by_hand("PRAGMA table_info(jobs)")[16:]
    assert [column["name"] for column in added if column["notnull"]] == []
    promised = ["failure_class", "next_attempt_at", "server", "prompt_id", "batch_id", "batch_index", "outputs"]
    assert {*promised, "needs_regeneration", "created_at"} <= {column["name"] for column in added}


@pytest.mark.parametrize(
    ("index", "columns"),
    [("idx_jobs_status_priority", ["status", "priority"]), ("idx_jobs_started", ["start_time"])],
)
async def test_the_documented_indexes_are_there(sqlite: SqliteDatabase, index: str, columns: list[str]) -> None:
    assert [column["name"] for column in sqlite.by_hand(f"PRAGMA index_info({index})")] == columns


async def test_an_older_shell_understands_the_whole_schema(sqlite: SqliteDatabase) -> None:
    assert sqlite.by_hand("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert sqlite.by_hand("SELECT * FROM book_pages") == []
    assert {row["type"] for row in sqlite.by_hand("SELECT type FROM sqlite_schema")} >= {"view", "trigger", "index"}
    for table in sqlite.by_hand("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"):
        sqlite.by_hand(f"SELECT * FROM {table['name']}")
    sqlite.by_hand(
        "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('x', 'T2I', 'wf', 'pending');"
        "UPDATE jobs SET status = 'done'; DELETE FROM jobs; VACUUM"
    )
