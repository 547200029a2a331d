"""No question that agents ask again and again reads a whole table, however many jobs there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import apsw
import pytest

from comfyui_agent.domain.batches import BatchKind
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.domain.retry_policy import Retry
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import (
    batch_endings,
    batches,
    bursts,
    grids,
    job_commands,
    job_pages,
    job_queries,
    leases,
    liveness,
    outcomes,
    overview,
)
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.job_orders import CursorPlace, cursor_of
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.port import Session
from comfyui_agent.store.records import Leased, Window
from comfyui_agent.store.sqlite.migrator import MIGRATIONS
from comfyui_agent.store.sqlite.session import QUERIES, add_brief_views
from comfyui_agent.store.store import Store
from support.store_batches import FOX, queue
from support.stores import (
    HOST,
    LEASE_SECONDS,
    SERVER,
    WORKER,
    Database,
    SqliteDatabase,
    broken,
    lease,
    lease_one,
)

PARAMETER = re.compile(r":(\w+)")
STATEMENT_END = re.compile(r";\s*$", re.MULTILINE)
WHOLE_TABLE = re.compile(r"SCAN (jobs|attempts|events|files|templates)\b(?! USING (COVERING )?INDEX)")
SMALL_INDEXES = ("idx_jobs_next", "idx_jobs_attention", "idx_attempts_open", "idx_attempts_at_server", "idx_jobs_sets")
"""What a scan may go through: it ends at a limit, holds no more than the windows of the servers, or counts what waits
for a forecast, which is kept for long where that takes long.
"""
RARE = (  # noqa: SIM905 - a list of words
    "recount check_pages wrong_counts largest_jobs bytes_of_unused_templates remove_unused_templates kept_pictures "
    "prunable_jobs table_rows insert_row"
).split()


@pytest.fixture
async def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    await open_store(tmp_path / "plans.db").close()
    with apsw.Connection(str(tmp_path / "plans.db")) as connection:
        add_brief_views(connection)
        yield connection
    connection.close()


def plan_of(connection: apsw.Connection, query: str) -> list[str]:
    values = dict.fromkeys(PARAMETER.findall(QUERIES[query]), 1)
    statements = [statement for statement in STATEMENT_END.split(QUERIES[query]) if statement.strip()]
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {statement}", values) for statement in statements]
    return [detail for plan in plans for *_, detail in plan]


async def test_a_question_goes_through_an_index(connection: apsw.Connection) -> None:
    plans = {query: plan_of(connection, query) for query in QUERIES if query not in RARE}
    steps = [(query, step) for query, plan in plans.items() for step in plan]
    assert [(query, step) for query, step in steps if WHOLE_TABLE.search(step)] == []
    scans = [(query, step) for query, step in steps if step.startswith(("SCAN jobs", "SCAN attempts"))]
    assert [(query, step) for query, step in scans if not step.endswith(SMALL_INDEXES)] == []


async def test_what_runs_next_is_read_in_order_and_not_sorted(connection: apsw.Connection) -> None:
    plan = plan_of(connection, "next_jobs")
    assert plan[0] == "SEARCH jobs USING INDEX idx_jobs_sets (<expr>=? AND <expr>=? AND id>?)"
    assert not [step for step in plan if "TEMP B-TREE" in step]


WALKS = (  # noqa: SIM905 - a list of words
    "rendering_after rendering_after_none waiting_after waiting_after_none ended_after ended_after_none "
    "attention_after attention_after_none members_from members_from_none members_in_state newest_before "
    "names_beginning batches_before batches_of_kind_before open_batches"
).split()


@pytest.mark.parametrize("query", WALKS)
async def test_what_people_page_through_is_read_in_order_and_not_sorted(
    connection: apsw.Connection, query: str
) -> None:
    plan = [step for step in plan_of(connection, query) if "jobs" in step or "batches" in step or "B-TREE" in step]
    assert plan
    assert [step for step in plan if "B-TREE" in step] == []
    seeks = [step for step in plan if step.startswith("SEARCH")]
    assert len(seeks) == len(plan) or query == "open_batches"
    if "FROM jobs" in QUERIES[query] and "idx_jobs_attention" not in QUERIES[query]:  # it holds few, and rows are read
        assert all("COVERING INDEX" in step or "PRIMARY KEY" in step for step in seeks)


# Work is counted in steps of the database's own machine: the same on every computer.

MANY = {"sqlite": 50_000, "postgres": 4_000}
WAITING = ("paused", "burst", "filling", "backoff", "turn", "reserved")


async def steps_of(store: Store, database: Database, work: Callable[[Session], object], *, reads: bool = False) -> int:
    """How much work a piece of a transaction is; it is undone. `reads`: where people's looks are read."""
    steps = 0

    def counted(session: Session) -> None:
        nonlocal steps
        done = database.work(session)
        work(session)
        steps = done()
        raise Counted

    with pytest.raises(Counted):
        await (store.driver.read if reads else store.driver.write)(counted)
    return steps


class Counted(Exception):
    """Nothing of it is kept."""


@pytest.fixture
def many(database: Database) -> int:
    return MANY["sqlite" if isinstance(database, SqliteDatabase) else "postgres"]


def crowd(database: Database, hold: str, count: int, *, batch: str | None = None) -> None:
    """So many rows that wait in front of everyone else; those that are reserved are not held otherwise."""
    named = f"'{batch}'" if batch else "NULL"
    held, reserved = ("NULL", 1) if hold == "reserved" else (f"'{hold}'", "NULL")
    until = "'2999-01-01 00:00:00.000'" if hold == "backoff" else "NULL"
    database.by_hand(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
        f"WHERE n < {count}) INSERT INTO jobs (config_name, job_type, workflow_id, priority, status, hold, batch_id, "
        f"batch_index, next_attempt_at, reserved, created_at) SELECT '{hold}-' || n, 'T2I', 'wf', 1, 'pending', "
        f"{held}, {named}, n + 1000, {until}, {reserved}, '2025-01-01 00:00:00.000' FROM numbers"
    )


def lease_some(session: Session, batch_id: str | None = None) -> list[Leased]:
    ids = [mint_prompt_id() for _ in range(4)]
    window = Window(SERVER, 16, batch_id=batch_id)
    found = leases.lease_jobs(session, WORKER, window, ids, LEASE_SECONDS, longest_backoff=10**12)
    assert len(found) == 4
    return found


@pytest.mark.parametrize("hold", WAITING)
async def test_what_waits_in_front_costs_a_lease_nothing(
    store: Store, database: Database, many: int, hold: str
) -> None:
    await queue(store, 8)
    queued = await queue(store, 8, "reserved", reserved=True)
    asked: dict[str, Callable[[Session], object]] = {
        "lease": lease_some,
        "lease of a batch": lambda session: lease_some(session, "reserved"),
        "idle": job_queries.is_queue_idle,
        "batch idle": lambda session: batches.is_batch_idle(session, FOX),
        "grids": lambda session: grids.claim_grid(session, WORKER, HOST, None),
        "filling": lambda session: batches.discard_unfinished(session, HOST),
        "recovery": liveness.open_attempts,
        "cancel": lambda session: job_commands.cancel_jobs(session, queued),
    }
    before = {name: await steps_of(store, database, work) for name, work in asked.items()}
    crowd(database, hold, many // len(WAITING) if hold in ("backoff", "turn") else many)
    database.tidy()
    after = {name: await steps_of(store, database, work) for name, work in asked.items()}
    assert {name: steps for name, steps in after.items() if steps > 2 * before[name] + 500} == {}


async def test_one_member_of_a_large_batch_costs_no_more_than_one_of_a_small(
    store: Store, database: Database, many: int
) -> None:
    await queue(store, 8)
    leased = await lease_one(store)
    (done,) = await lease(store)
    await store.run(ops.complete_job, done.lease, ["a.png"], None)
    asked: dict[str, Callable[[Session], object]] = {
        "lease": lambda session: lease_some(session, FOX),
        "complete": lambda session: outcomes.complete_job(session, leased.lease, ["a.png"], None),
        "requeue": lambda session: outcomes.requeue_job(session, leased.lease, broken(), Retry(0.0, charged=True)),
        "refuse": lambda session: outcomes.refuse_job(session, leased.lease, broken()),
        "cancel": lambda session: job_commands.cancel_jobs(session, [leased.lease.job_id]),
        "wish": lambda session: batches.resubmit_jobs(session, [(done.lease.job_id, None)]),
        "clock": lambda session: batch_endings.tick_batches(session, [FOX], 10.0, 60.0),
        "idle": lambda session: batches.is_batch_idle(session, FOX),
        "turns": batches.free_turns,
    }
    before = {name: await steps_of(store, database, work) for name, work in asked.items()}
    for hold in ("paused", "burst"):
        crowd(database, hold, many // 2, batch=FOX)
    database.tidy()
    after = {name: await steps_of(store, database, work) for name, work in asked.items()}
    assert {name: steps for name, steps in after.items() if steps > 2 * before[name] + 500} == {}


def cancel_whole(session: Session) -> None:
    batch_endings.begin_cancel(session, FOX)
    while batch_endings.end_next_members(session):
        pass


@pytest.mark.slow_on_postgres
@pytest.mark.parametrize(
    "name", ["release_members", "pause", "resume", "cancel", "retry", "put_off", "items", "turns", "hold_for_turn"]
)
async def test_what_is_done_with_a_whole_batch_costs_as_much_as_it_is_large(
    store: Store, database: Database, name: str
) -> None:
    """Four times the members: about four times the work, and not sixteen times."""
    work: dict[str, Callable[[Session], object]] = {
        "release_members": lambda session: session.run("release_members", id=FOX),
        "pause": lambda session: batches.pause_batch(session, FOX),
        "resume": lambda session: (batches.pause_batch(session, FOX), batches.resume_batch(session, FOX)),
        "cancel": cancel_whole,
        "retry": lambda session: (
            cancel_whole(session),
            batches.retry_batch(session, FOX, with_cancelled=True),
        ),
        "put_off": lambda session: session.run("put_off_items", id=FOX),
        "items": lambda session: bursts.burst_items(session, FOX),
        "turns": batches.free_turns,
        "hold_for_turn": lambda session: session.run("hold_for_turn", batch_id=FOX),
    }
    await queue(store, 1, kind=BatchKind.BOOK, is_serial=True)
    await lease_one(store)
    crowd(database, "turn", 400, batch=FOX)
    few = await steps_of(store, database, work[name])
    database.by_hand("UPDATE jobs SET config_name = 'few' || id")
    crowd(database, "turn", 1200, batch=FOX)
    assert await steps_of(store, database, work[name]) < 6 * few + 100


def pages(session: Session, many: int, end: object) -> dict[str, int]:
    """How many jobs each kind of look finds, so that none of them finds nothing by mistake."""
    first = job_pages.job_page(session, JobFilter(), None, 20)
    asked = {
        "first": first,
        "second": job_pages.job_page(session, JobFilter(), first.cursor, 20),
        "half way": job_pages.job_page(session, JobFilter(), cursor_of("pending", CursorPlace(1, many // 2)), 20),
        "ended": job_pages.job_page(session, JobFilter(), cursor_of("done", CursorPlace(end, 3 * many // 2)), 20),
        "failed": job_pages.job_page(session, JobFilter(status=JobStatus.FAILED), None, 20),
        "members": job_pages.job_page(session, JobFilter(batch_id=FOX), cursor_of("members", CursorPlace(5, 0)), 20),
    }
    return {name: len(page.jobs) for name, page in asked.items()}


def names(session: Session) -> list[int]:
    wanted = (JobFilter(text="ting-777", status=JobStatus.PENDING), JobFilter(text="ting-none"))
    return [len(job_pages.job_page(session, each, None, 20).jobs) for each in wanted]


END = "2025-01-01 00:00:00.000"


async def test_a_look_at_many_jobs_costs_no_more_than_one_at_few(store: Store, database: Database, many: int) -> None:
    """All with the same priority, all ended at the same time: no page walks through the ones before it."""
    await queue(store, 8)
    crowd(database, "waiting", 100)
    database.by_hand("UPDATE jobs SET hold = NULL WHERE hold = 'waiting'")
    while await ops.index_names(store):
        pass
    end = END if isinstance(database, SqliteDatabase) else datetime.fromisoformat(END).replace(tzinfo=timezone.utc)
    asked: dict[str, Callable[[Session], object]] = {
        "pages": lambda session: pages(session, many, end),
        "overview": overview.read_overview,
        "batches": lambda session: job_pages.batch_page(session, None, None, 20),
    }
    if isinstance(database, SqliteDatabase):  # PostgreSQL decides by how many there are whether to use an index
        asked["names"] = names
    before = {name: await steps_of(store, database, work, reads=True) for name, work in asked.items()}
    database.by_hand("UPDATE jobs SET config_name = 'few' || id")
    crowd(database, "waiting", 2 * many)
    database.by_hand(
        f"UPDATE jobs SET hold = NULL WHERE hold = 'waiting'; UPDATE jobs SET status = 'done', end_time = '{END}' "
        f"WHERE id > {many}; UPDATE jobs SET status = 'failed' WHERE id > {2 * many - 100}"
    )
    while await ops.index_names(store, 20_000):
        pass
    database.clock.advance(30)
    database.tidy()
    after = {name: await steps_of(store, database, work, reads=True) for name, work in asked.items()}
    found = await store.driver.read(lambda session: pages(session, many, end))
    assert {name: count for name, count in found.items() if count != 20} == {"members": 3}
    named = sum("ting-777" in f"waiting-{number}" for number in range(1, many - 100))
    assert await store.driver.read(names) == [named, 0]
    assert after["pages"] < before["pages"] + 20_000
    assert after.get("names", 0) < before.get("names", 0) + 20_000
    assert after["overview"] < before["overview"] + 20_000
    assert after["batches"] < before["batches"] + 500


TURN = re.compile(r"SELECT other\.id FROM.*?LIMIT 1", re.DOTALL)


async def test_whose_turn_it_is_is_read_in_order(connection: apsw.Connection) -> None:
    statements = TURN.findall(MIGRATIONS[4].read_text(encoding="utf-8"))
    assert len(statements) == 2
    for statement in statements:
        query = re.sub(r"(NEW|OLD)\.job_id", "1", statement)
        plan = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step] == []
        assert plan[-1].endswith("idx_jobs_held (hold=? AND batch_id=?)")
