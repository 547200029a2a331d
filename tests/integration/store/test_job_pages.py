"""Pages of jobs: every job of the list on exactly one of them, whatever people have written into the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from comfyui_agent.domain.batches import BatchKind, NewBatch
from comfyui_agent.domain.jobs import Job
from comfyui_agent.domain.states import JobStatus
from comfyui_agent.store import job_pages
from comfyui_agent.store import operations as ops
from comfyui_agent.store.job_orders import FIRST_ID, LAST_ID, BadCursor, CursorPlace, cursor_of
from comfyui_agent.store.job_pages import JobFilter, JobPage
from comfyui_agent.store.store import Store
from support.store_batches import FOX, land, queue
from support.stores import Database, SqliteDatabase, lease, submit_one, wish

ORDER = {
    "processing": "start_time NULLS FIRST, id",
    "pending": "priority NULLS FIRST, id",
    "failed": "end_time DESC NULLS LAST, id DESC",
    "done": "end_time DESC NULLS LAST, id DESC",
}
"""As the documented queries have it: rows without a value come first going up, and last going down."""

KEYS = {
    "priority": ["NULL", "NULL", "50", "50", "50", "-3", "7", "9223372036854775807"],
    "time": [
        "NULL",
        "'2025-08-09 12:30:01.000'",
        "'2025-08-09 12:30:01.000'",
        "'2025-08-09T12:30:01Z'",
        "NULL",
        "'2025-08-09 12:30:01.001'",
        "'2025-08-09 12:30:01.000'",
    ],
}
ODD_KEYS = {
    "sqlite": {
        "priority": ["2.5", "9e999", "-9e999", "'soon'", "''", "x'ff00'", "x''"],
        "time": ["'yesterday'", "''", "17", "x'ffffffff'", "x'00'", "'ÿ'"],
    },
    "postgres": {
        "priority": ["-9223372036854775808", "0", "1", "2", "3"],
        "time": ["'yesterday'", "'0044-03-15'", "'9999-12-30'", "'2025-08-09 12:30:01.000001'"],
    },
}
"""What only one kind of database lets people write."""


def keys_of(database: Database) -> dict[str, list[str]]:
    odd = ODD_KEYS["sqlite" if isinstance(database, SqliteDatabase) else "postgres"]
    return {name: KEYS[name] + odd[name] for name in KEYS}


def insert_by_hand(database: Database) -> None:
    """Jobs in every state, with all kinds of things in the columns that lists are ordered by."""
    rows, keys = [], keys_of(database)
    for status, columns in ORDER.items():
        column = columns.split()[0]
        for number, key in enumerate(keys["priority" if status == "pending" else "time"]):
            rows.append((column, f"('{status}-{number}', 'T2I', 'wf', '{status}', {key})"))
    for column in ("start_time", "priority", "end_time"):
        values = ", ".join(row for name, row in rows if name == column)
        database.by_hand(f"INSERT INTO jobs (config_name, job_type, workflow_id, status, {column}) VALUES {values}")


def listed(database: Database, status: str, where: str = "true") -> list[int]:
    sql = f"SELECT id FROM jobs WHERE status = '{status}' AND {where} ORDER BY {ORDER[status]}"
    return [row["id"] for row in database.by_hand(sql)]


async def all_of(store: Store, wanted: JobFilter, limit: int = 50) -> list[Job]:
    """Every page of a question, to the end. A page that is not full says so."""
    found: list[Job] = []
    cursor: str | None = None
    for _ in range(10_000):
        page = await store.run(ops.job_page, wanted, cursor, limit)
        assert len(page.jobs) <= limit
        assert page.is_whole == (len(page.jobs) == limit or page.cursor is None)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


def ids(jobs: Sequence[Job]) -> list[int]:
    return [job.id for job in jobs]


def names(jobs: Sequence[Job]) -> list[str]:
    return [job.config_name for job in jobs]


# Sections.


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_all_jobs_are_on_the_pages_once_and_in_order(store: Store, database: Database, limit: int) -> None:
    insert_by_hand(database)
    expected = [job_id for status in ORDER for job_id in listed(database, status)]
    assert len(expected) == 3 * len(keys_of(database)["time"]) + len(keys_of(database)["priority"])
    assert ids(await all_of(store, JobFilter(), limit)) == expected


@pytest.mark.parametrize("status", list(ORDER))
async def test_the_jobs_in_one_state_are_on_the_pages_once_and_in_order(
    store: Store, database: Database, status: str
) -> None:
    insert_by_hand(database)
    for limit in (1, 3, 50):
        assert ids(await all_of(store, JobFilter(status=JobStatus(status)), limit)) == listed(database, status)


async def test_what_waits_is_listed_as_it_is_leased(store: Store, database: Database) -> None:
    insert_by_hand(database)
    waiting = await all_of(store, JobFilter(status=JobStatus.PENDING), 4)
    leased = [each.config_name for each in await lease(store, most=50, size=50)]
    assert names(waiting) == leased


async def test_an_empty_database_has_one_empty_page(store: Store) -> None:
    for wanted in (JobFilter(), JobFilter(text="a"), JobFilter(text="abc"), JobFilter(batch_id="none")):
        assert await store.run(ops.job_page, wanted) == JobPage([], None, True)


async def test_the_last_page_says_that_it_is_the_last(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"{number}.yaml") for number in range(4)])
    first = await store.run(ops.job_page, JobFilter(), None, 2)
    assert first.cursor is not None
    assert (await store.run(ops.job_page, JobFilter(), first.cursor, 2)).cursor is None


async def test_jobs_that_move_on_while_someone_reads_trouble_nobody(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"{number}.yaml") for number in range(6)])
    first = await store.run(ops.job_page, JobFilter(), None, 2)
    await land(store, await lease(store, most=3))
    second = await store.run(ops.job_page, JobFilter(), first.cursor, 2)
    third = await store.run(ops.job_page, JobFilter(), second.cursor, 50)
    assert names(second.jobs) == ["3.yaml", "4.yaml"]
    assert names(third.jobs) == ["5.yaml", "2.yaml", "1.yaml", "0.yaml"]
    assert third.cursor is None


async def test_by_age_every_job_is_on_one_page_whatever_becomes_of_it_meanwhile(store: Store) -> None:
    ids = await store.run(ops.submit_jobs, [wish(f"{number:02}", priority=number % 5) for number in range(24)])
    seen: list[int] = []
    cursor: str | None = None
    while True:
        page = await store.run(ops.job_page, JobFilter(is_by_age=True), cursor, 5)
        seen += [job.id for job in page.jobs]
        if (cursor := page.cursor) is None:
            break
        leased = await lease(store, most=4)  # the order of their work changes: pending, processing, done
        await land(store, leased[:2])
        await store.run(ops.submit_jobs, [wish(f"newer {len(seen)}")])
    assert seen == sorted((job_id for job_id in ids if job_id is not None), reverse=True)


@pytest.mark.parametrize("limit", [-5, 0, 1])
async def test_a_page_has_at_least_one_job(store: Store, limit: int) -> None:
    await submit_one(store, "a")
    await submit_one(store, "b")
    assert names((await store.run(ops.job_page, JobFilter(), None, limit)).jobs) == ["a"]


async def test_a_page_has_at_most_a_thousand(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"{number:04}") for number in range(1001)])
    page = await store.run(ops.job_page, JobFilter(), None, 10**9)
    assert len(page.jobs) == 1000
    assert names((await store.run(ops.job_page, JobFilter(), page.cursor)).jobs) == ["1000"]


# What belongs to something.


@pytest.fixture
async def mixed(store: Store, database: Database) -> Store:
    """Jobs that differ in one thing each."""
    await store.run(
        ops.submit_jobs, [wish("plain"), wish("film", job_type="T2V"), wish("other", workflow_id="wf_other")]
    )
    await queue(store, 2)
    database.by_hand(
        "UPDATE jobs SET server = 'http://b:8188', failure_class = 'oom' WHERE config_name = 'plain';"
        "UPDATE jobs SET status = 'failed', end_time = '2025-08-09 12:30:01.000' WHERE config_name = 'fox_1_1'"
    )
    return store


ASKED: list[tuple[dict[str, Any], list[str]]] = [
    ({"job_type": "T2V"}, ["film"]),
    ({"workflow_id": "wf_other"}, ["other"]),
    ({"server": "http://b:8188"}, ["plain"]),
    ({"failure_class": "oom"}, ["plain"]),
    ({"failure_class": "oom", "job_type": "T2V"}, []),
    ({"workflow_id": "wf_realistic_portrait", "status": JobStatus.FAILED}, ["fox_1_1"]),
    ({"batch_id": FOX}, ["fox_1_0", "fox_1_1"]),
    ({"batch_id": FOX, "status": JobStatus.FAILED}, ["fox_1_1"]),
    ({"batch_id": FOX, "status": JobStatus.DONE}, []),
    ({"batch_id": FOX, "text": "X_1_0"}, ["fox_1_0"]),
    ({"batch_id": FOX, "text": "plain"}, []),
    ({"batch_id": FOX, "workflow_id": "wf_other"}, []),
    ({"text": "o", "workflow_id": "wf_other"}, ["other"]),
    ({"text": "pla", "server": "http://b:8188"}, ["plain"]),
    ({"workflow_id": "", "server": "", "job_type": "", "failure_class": "", "text": "film"}, ["film"]),
    ({"batch_id": "", "text": "film"}, ["film"]),
    ({"workflow_id": "\ud800"}, []),
    ({"batch_id": "\ud800"}, []),
    ({"text": "\ud800"}, []),
    ({"text": "plain\0"}, []),
]


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_only_what_is_asked_for_is_found(mixed: Store, is_indexed: bool) -> None:
    if is_indexed:
        assert await ops.index_names(mixed) == 5
    found = [(asked, names(await all_of(mixed, JobFilter(**asked), 1))) for asked, _ in ASKED]
    assert found == ASKED


MEMBERS = ["NULL", "3", "1", "1", "NULL", "-2"]
ODD_MEMBERS = ["'last'", "x'00'", "1.5", "9e999", "-9e999"]


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_members_of_a_batch_are_listed_in_their_order_and_those_without_a_place_last(
    store: Store, database: Database, limit: int
) -> None:
    places = MEMBERS + (ODD_MEMBERS if isinstance(database, SqliteDatabase) else [])
    values = ", ".join(f"('{n}', 'T2I', 'wf', 'done', 'b', {place})" for n, place in enumerate(places))
    columns = "config_name, job_type, workflow_id, status, batch_id, batch_index"
    database.by_hand(f"INSERT INTO jobs ({columns}) VALUES {values}, ('x', 'T2I', 'wf', 'done', 'c', 0)")
    sql = "SELECT id FROM jobs WHERE batch_id = 'b' ORDER BY batch_index IS NULL, batch_index, id"
    expected = [row["id"] for row in database.by_hand(sql)]
    found: list[int] = []
    cursor: str | None = None
    while True:
        page = await store.run(ops.job_page, JobFilter(batch_id="b"), cursor, limit)
        jobs, cursor = page.jobs, page.cursor
        found += ids(jobs)
        if cursor is None:
            break
    assert found == expected
    assert ids(await all_of(store, JobFilter(batch_id="b", status=JobStatus.DONE), limit)) == sorted(expected)


# Bounded work.


@pytest.fixture
def short_sighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many rows are looked at for one page."""
    monkeypatch.setattr(job_pages, "MOST_LOOKED_AT", 10)
    monkeypatch.setattr(job_pages, "FIRST_LOOK", 3)
    monkeypatch.setattr(job_pages, "GROWTH", 1)


@pytest.mark.parametrize("status", [None, *JobStatus])
@pytest.mark.usefixtures("short_sighted")
async def test_where_little_fits_pages_are_short_and_lead_on_until_all_is_found(
    store: Store, database: Database, status: JobStatus | None
) -> None:
    insert_by_hand(database)
    database.by_hand("UPDATE jobs SET workflow_id = 'rare' WHERE id % 9 = 0")
    expected = [n for each in ORDER for n in listed(database, each, "workflow_id = 'rare'") if status in (None, each)]
    for limit in (1, 2, 50):
        assert ids(await all_of(store, JobFilter(status=status, workflow_id="rare"), limit)) == expected
    page = await store.run(ops.job_page, JobFilter(status=status, workflow_id="none"))
    assert (page.jobs, page.is_whole) == ([], False)
    assert page.cursor is not None


async def test_a_question_that_fits_nothing_looks_at_so_many_rows_and_no_more(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pages, "MOST_LOOKED_AT", 1000)
    await store.run(ops.submit_jobs, [wish(f"{number:05}") for number in range(3000)])
    for asked in ({"workflow_id": "none"}, {"text": "zz"}, {"text": "zzz"}, {"text": "zzz", "server": "none"}):
        looked_at: list[int] = []
        original = job_pages._Reader._take

        def take(self: Any, walk: Any, ids: Sequence[int], seen: list[int] = looked_at, go_on: Any = original) -> None:
            seen.append(len(ids))
            go_on(self, walk, ids)

        monkeypatch.setattr(job_pages._Reader, "_take", take)
        page = await store.run(ops.job_page, JobFilter(**asked))
        monkeypatch.setattr(job_pages._Reader, "_take", original)
        assert (page.jobs, page.is_whole, sum(looked_at)) == ([], False, 1000)


# Cursors.


async def test_a_cursor_of_another_question_is_refused(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"{number}.yaml") for number in range(3)])
    page = await store.run(ops.job_page, JobFilter(), None, 1)
    for wanted in (JobFilter(status=JobStatus.DONE), JobFilter(text="yaml"), JobFilter(batch_id=FOX)):
        with pytest.raises(BadCursor, match="belongs to a page of another question"):
            await store.run(ops.job_page, wanted, page.cursor)
    with pytest.raises(BadCursor):
        await store.run(ops.batch_page, None, page.cursor)
    with pytest.raises(BadCursor, match="not one that a page ended with"):
        await store.run(ops.job_page, JobFilter(), "nonsense")
    with pytest.raises(BadCursor):
        await store.run(ops.job_page, JobFilter(), "")


async def test_a_cursor_that_someone_made_up_does_no_harm(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"{number}.yaml") for number in range(3)])
    wanted = {
        **dict.fromkeys(ORDER, JobFilter()),
        "members": JobFilter(batch_id="none"),
        "newest": JobFilter(text="a"),
        "beginning": JobFilter(text="a"),
        "names": JobFilter(text="yaml"),
    }
    for order, asked in wanted.items():
        for key in (None, 7, -1.5, float("nan"), "text", b"bytes"):
            for row_id in (FIRST_ID, 2, LAST_ID):
                with contextlib.suppress(BadCursor):  # where columns have types
                    page = await store.run(ops.job_page, asked, cursor_of(order, CursorPlace(key, row_id)))
                    assert len(page.jobs) <= 3


# Batches.


@pytest.mark.parametrize("limit", [1, 2, 50])
async def test_batches_are_listed_newest_first_and_each_once(store: Store, database: Database, limit: int) -> None:
    for number in range(6):
        kind = BatchKind.BOOK if number % 3 == 0 else BatchKind.SWEEP
        await store.run(ops.create_batch, NewBatch(f"batch_{number}", "b", kind), None)
        if number % 2:
            database.clock.advance(1)
    late = "some day" if isinstance(database, SqliteDatabase) else "tomorrow"
    database.by_hand(f"UPDATE batches SET created_at = '{late}' WHERE id = 'batch_1'")

    async def read(kind: BatchKind | None) -> list[str]:
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = await store.run(ops.batch_page, kind, cursor, limit)
            found += [batch.id for batch in page.batches]
            if (cursor := page.cursor) is None:
                return found

    assert await read(None) == ["batch_1", "batch_5", "batch_4", "batch_3", "batch_2", "batch_0"]
    assert await read(BatchKind.BOOK) == ["batch_3", "batch_0"]
    assert await read(BatchKind.BURST) == []


async def test_a_page_of_batches_counts_their_members(store: Store) -> None:
    await queue(store, 3)
    await land(store, await lease(store))
    (batch,) = (await store.run(ops.batch_page)).batches
    assert (batch.id, batch.pending, batch.done, batch.total) == (FOX, 2, 1, 3)
    assert batch == await store.run(ops.find_batch, FOX)


async def test_a_cursor_of_one_kind_of_batches_is_not_one_of_another(store: Store) -> None:
    for number in range(2):
        await store.run(ops.create_batch, NewBatch(f"batch_{number}", "b", BatchKind.BOOK), None)
    page = await store.run(ops.batch_page, BatchKind.BOOK, None, 1)
    with pytest.raises(BadCursor):
        await store.run(ops.batch_page, BatchKind.SWEEP, page.cursor)
    with pytest.raises(BadCursor):
        await store.run(ops.batch_page, None, page.cursor)
