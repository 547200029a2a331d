"""Search by name: every character stands for itself, and every job that has the text is found, indexed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.states import JobStatus
from comfyui_agent.files.folder import Folder
from comfyui_agent.store import job_orders, job_pages
from comfyui_agent.store import operations as ops
from comfyui_agent.store.integrity import examine
from comfyui_agent.store.job_pages import JobFilter
from comfyui_agent.store.store import Store
from support.stores import HOST, KINDS, Database, SqliteDatabase, submit_one, wish

LETTERS = "aAbBzZ01_%.-\"'*()^:~ äÄßİ€猫😀\t\n\x1f"
SMALL = str.maketrans({chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)})


async def index_all(store: Store, most: int = 3) -> int:
    indexed = 0
    while part := await ops.index_names(store, most):
        indexed += part
    return indexed


async def search(store: Store, text: str, limit: int = 50, **asked: Any) -> list[str]:
    """The names on all pages."""
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.run(ops.job_page, JobFilter(text=text, **asked), cursor, limit)
        found += [job.config_name for job in page.jobs]
        if (cursor := page.cursor) is None:
            return found


@pytest.mark.parametrize("is_small", [True, False], ids=["few in that state", "many in that state"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_every_job_with_the_text_is_found_once_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool, kind: str
) -> None:
    monkeypatch.setattr(job_pages, "FEW", 100 if is_small else 0)
    database, loop = KINDS[kind](tmp_path), asyncio.new_event_loop()
    store = database.open()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        names=st.lists(st.text(LETTERS, min_size=1, max_size=12), unique=True, min_size=1, max_size=12),
        text=st.text(LETTERS, min_size=1, max_size=5),
        indexed=st.integers(0, 5),
        limit=st.integers(1, 5),
        status=st.sampled_from([None, JobStatus.PENDING]),
        common=st.sampled_from([1, 1_000]),
    )
    def check(names: list[str], text: str, indexed: int, limit: int, status: JobStatus | None, common: int) -> None:
        monkeypatch.setattr(job_orders, "COMMON", common)
        database.empty()
        database.by_hand("DELETE FROM about WHERE key = 'names_indexed'")
        loop.run_until_complete(store.run(ops.submit_jobs, [wish(name) for name in names]))
        for _ in range(indexed):
            loop.run_until_complete(ops.index_names(store, 3))
        found = loop.run_until_complete(search(store, text, limit, status=status))
        expected = [name for name in reversed(names) if text.translate(SMALL) in name.translate(SMALL)]
        assert sorted(found) == sorted(expected)
        if len(text) >= 3 and status is None:
            beginning = sorted((name for name in expected if name.startswith(text)), reverse=True)
            assert found == [*beginning, *(name for name in expected if name not in beginning)]

    try:
        check()
    finally:
        loop.run_until_complete(database.close())
        loop.close()


NAMES = ["knight.yaml", "KNIGHT_2", "100%_sure", '"quoted"', "a AND b", "NEAR(x y)", "col:umn", "it's", "Ünder", "kn"]


FOUND = {
    "knight": ["knight.yaml", "KNIGHT_2"],
    "NIGHT_": ["KNIGHT_2"],
    "%_s": ["100%_sure"],
    "%": ["100%_sure"],
    "%%%": [],
    "___": [],
    '"qu': ['"quoted"'],
    '"""': [],
    "AND": ["a AND b"],
    "a AND": ["a AND b"],
    "NEAR(x": ["NEAR(x y)"],
    "x y": ["NEAR(x y)"],
    "kni*": [],
    "l:u": ["col:umn"],
    "config_name:kni": [],
    "it's": ["it's"],
    "^kn": [],
    "der": ["Ünder"],
    "Ünd": ["Ünder"],
    "ünd": [],
    "kn": ["knight.yaml", "kn", "KNIGHT_2"],
    "KN": ["KNIGHT_2", "kn", "knight.yaml"],
    "n": ["kn", "Ünder", "col:umn", "NEAR(x y)", "a AND b", "KNIGHT_2", "knight.yaml"],
}
"""Those that begin with the text, from the last name on, then the newest first."""


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_what_looks_like_a_command_is_a_text_like_any_other(store: Store, is_indexed: bool) -> None:
    await store.run(ops.submit_jobs, [wish(name) for name in NAMES])
    if is_indexed:
        assert await index_all(store) == len(NAMES)
    for limit in (1, 50):
        assert {text: await search(store, text, limit) for text in FOUND} == FOUND


async def test_a_text_longer_than_any_name_finds_nothing(store: Store) -> None:
    await submit_one(store, "k" * 300)
    for _ in range(2):
        assert await search(store, "k" * 300) == ["k" * 300]
        assert await search(store, "k" * 301) == []
        assert await search(store, "k" * 100_000) == []
        await index_all(store)


# The index.


async def test_names_are_put_in_some_at_a_time_and_none_twice(store: Store, database: Database) -> None:
    other = database.open()
    await store.run(ops.submit_jobs, [wish(f"knight_{number}") for number in range(100)])
    parts = await asyncio.gather(*(ops.index_names(each, 9) for _ in range(10) for each in (store, other)))
    assert set(parts) <= {0, 1, 9}
    assert sum(parts) + await index_all(store) == 100
    assert len(await search(other, "knight")) == 100


async def test_the_step_from_new_names_to_indexed_ones_leaves_none_out(store: Store) -> None:
    await store.run(ops.submit_jobs, [wish(f"knight_{number}") for number in range(6)])
    for indexed in range(7):
        for limit in range(1, 7):
            assert await search(store, "knight", limit) == [f"knight_{number}" for number in range(5, -1, -1)]
        assert await ops.index_names(store, 1) == (indexed < 6)


async def test_where_nothing_is_to_be_indexed_nothing_is_written(store: Store, database: Database) -> None:
    assert await ops.index_names(store) == 0
    await submit_one(store, "knight")
    assert await ops.index_names(store) == 1
    before = database.commits(store), store.version
    assert await ops.index_names(store) == 0
    assert (database.commits(store), store.version) == before


async def test_jobs_that_are_gone_or_have_another_name_are_not_shown(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("knight_1"), wish("knight_2"), wish("knight_3")])
    await index_all(store)
    database.by_hand("DELETE FROM jobs WHERE id = 1; UPDATE jobs SET config_name = 'queen' WHERE id = 2")
    assert await search(store, "knight") == ["knight_3"]


async def test_ids_that_begin_anew_by_hand_are_indexed_anew(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish(f"knight_{number}") for number in range(5)])
    await index_all(store)
    database.empty()
    await store.run(ops.submit_jobs, [wish("queen_1"), wish("queen_2")])
    assert await search(store, "queen") == ["queen_2", "queen_1"]
    assert await index_all(store) == 2
    assert await search(store, "queen") == ["queen_2", "queen_1"]
    assert await search(store, "knight") == []
    assert len(database.by_hand("SELECT * FROM job_names")) == 2


async def test_an_index_that_was_forgotten_is_made_anew(store: Store, database: Database) -> None:
    await store.run(ops.submit_jobs, [wish("knight_1"), wish("knight_2")])
    await index_all(store)
    database.by_hand("DELETE FROM about WHERE key = 'names_indexed'; UPDATE jobs SET config_name = 'rook' WHERE id = 1")
    assert await index_all(store) == 2
    assert await search(store, "rook") == ["rook"]


async def test_ids_that_people_chose_themselves_are_found(store: Store, database: Database) -> None:
    columns = "INSERT INTO jobs (id, config_name, job_type, workflow_id, status) VALUES"
    database.by_hand(f"{columns} (-7, 'knight_a', 'T2I', 'wf', 'done'), ({2**62}, 'knight_b', 'T2I', 'wf', 'done')")
    for _ in range(2):
        assert await search(store, "knight", 1) == ["knight_b", "knight_a"]
        assert await search(store, "ht", 1) == ["knight_b", "knight_a"]
        await index_all(store)


@pytest.mark.sqlite_only
async def test_names_that_are_bytes_or_in_another_encoding_are_found(store: Store, database: Database) -> None:
    columns = "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES"
    database.by_hand(
        f"{columns} (x'6b6e69676874', 'T2I', 'wf', 'done'), (CAST(x'6b6e69676874e9' AS TEXT), 'T2I', 'wf', 'done')"
    )
    for _ in range(3):
        assert await search(store, "KNIGHT") == ["knighté", "knight"]
        assert await search(store, "kn") == ["knighté", "knight"]
        assert await search(store, "hté") == ["knighté"]
        await index_all(store, 1)


@pytest.mark.sqlite_only
async def test_a_text_in_a_column_of_numbers_that_is_no_text_is_mended(store: Store, database: Database) -> None:
    await submit_one(store)
    for column in ("priority", "batch_index", "source", "digest", "pictures", "written", "retry_limit"):
        database.by_hand(f"UPDATE jobs SET {column} = CAST(x'e9' AS TEXT)")
        assert len((await store.run(ops.job_page, JobFilter())).jobs) == 1


async def test_many_that_have_the_text_are_found_in_the_order_of_their_state(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A common text is looked for where the jobs of that state are, a rare one in the index."""
    monkeypatch.setattr(job_pages, "FEW", 0)
    monkeypatch.setattr(job_orders, "COMMON", 5)
    await store.run(
        ops.submit_jobs, [wish(f"knight_{number}", priority=9 - number) for number in range(6)] + [wish("rook")]
    )
    await index_all(store)
    knights = [f"knight_{number}" for number in range(6)]
    assert await search(store, "knight", 2, status=JobStatus.PENDING) == knights[::-1]
    assert await search(store, "knight_", 2) == knights[::-1]
    monkeypatch.setattr(job_orders, "COMMON", 7)
    assert await search(store, "knight", 2, status=JobStatus.PENDING) == knights[::-1]
    assert await search(store, "rook", 2, status=JobStatus.PENDING) == ["rook"]
    assert await search(store, "rook", 2, status=JobStatus.DONE) == []


# A shell without the module that the index is made with.


@pytest.fixture
async def bare(store: Store, database: Database) -> Callable[[str], Any]:
    """Runs statements as a program does that has no virtual tables, with some names in the index."""
    assert isinstance(database, SqliteDatabase)
    path = str(database.path)
    await store.run(ops.submit_jobs, [wish(f"knight_{number}") for number in range(5)])
    await index_all(store)

    def run(sql: str) -> Any:
        connection = apsw.Connection(path)
        try:
            connection.drop_modules(None)
            connection.set_busy_timeout(5000)
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    with pytest.raises(apsw.SQLError, match="no such module"):
        run("SELECT * FROM job_names")
    return run


@pytest.mark.sqlite_only
async def test_a_program_without_the_module_writes_to_jobs_all_the_same(
    store: Store, bare: Callable[[str], Any]
) -> None:
    bare("INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('rook', 'T2I', 'wf', 'pending')")
    bare("UPDATE jobs SET config_name = 'bishop', status = 'done' WHERE id = 1")
    bare("UPDATE jobs SET status = 'failed', end_time = '2025-08-09 12:30:01.000' WHERE id = 2")
    bare("DELETE FROM jobs WHERE id = 3")
    assert (await store.run(ops.count_jobs)).pending == 3
    assert await search(store, "rook") == ["rook"]
    assert await search(store, "knight") == ["knight_4", "knight_3", "knight_1"]


@pytest.mark.sqlite_only
async def test_a_program_without_the_module_can_check_and_tidy_up(
    store: Store, bare: Callable[[str], Any], tmp_path: Path
) -> None:
    assert bare("PRAGMA integrity_check") == [("ok",)]
    assert bare("PRAGMA quick_check") == [("ok",)]
    bare("VACUUM")
    assert len(await search(store, "knight")) == 5
    assert all(finding.is_fine for finding in await examine(store, HOST, Folder(tmp_path).missing))
