"""`e3 db copy`: every table with every value, sequences go on, triggers work, and only a whole copy is a database."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.workspace import shown_database
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.tokens import Role
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.store import copying, event_log
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store, open_tables
from comfyui_agent.store.copying import TABLES, ComparedTable, copy_tables
from comfyui_agent.store.errors import CopyRefused, DatabaseUnusable
from comfyui_agent.store.sqlite.session import TIMES
from comfyui_agent.store.sqlite.tables import MORE_TIMES
from support.places import by_hand, new_place
from support.store_batches import land, lease_of, queue
from support.stores import lease_one, submit_one
from support.workspaces import call_e3

S, P = "sqlite", "postgres"
EVERY_WAY = [(S, S), (S, P), (P, S), (P, P)]
EITHER_TARGET = [(S, S), (S, P)]
EITHER_SOURCE = [(S, S), (P, S)]
TO_POSTGRES = [(S, P)]

ODD = """
INSERT INTO jobs (config_name, job_type, workflow_id, status, priority, metadata, duration, start_time) VALUES
    ('späť ☃', 'T2I', 'wf', 'failed', NULL, '{"a": [1, null, "é\\u0000"]}', 1e-7, NULL),
    ('two', 'T2I', 'wf', 'done', -3, '\n\t\\', 0.1, '2025-08-09 12:30:01.250');
INSERT INTO stuck_prompts (prompt_id, server, reason) VALUES ('p', 's', 'r');
INSERT INTO endings VALUES ('2025-08-09 12:30:40.000', 'done', 3), ('2025-08-09 12:30:50.000', 'done', 4);
INSERT INTO timings VALUES ('n', 's', 1, 0.30000000000000004, 0, NULL);
INSERT INTO server_sets (server) VALUES ('s');
INSERT INTO posted_prompts (job_id, prompt_id, number, extra_data, targets, told_at, hidden_at) VALUES
    (7, 'p', 0.5, '{}', '[]', '2025-08-09 12:30:01.250', '2025-08-09 12:30:01.251');
INSERT INTO posted_files VALUES ('output/cat_00001_.png', 7, 'output/x.png');
INSERT INTO posted_counters VALUES ('output/cat', 1);
INSERT INTO uploads (path, kept) VALUES ('input/cat.png', 'a.png');
INSERT INTO rejections (path, reason) VALUES ('jobs/x.yaml', 'why');
INSERT INTO server_states (server, state) VALUES ('s', 'paused');
INSERT INTO sessions (hash, token_id) VALUES ('h', 1);
INSERT INTO batch_endings VALUES ('fox_1', 'cancelled', 'why');
INSERT INTO ending_members VALUES (77, 'fox_1');
INSERT INTO idempotent_requests (key, scope, digest, creator, made) VALUES
    ('k', 'a', 'd', 'c', 'm'), ('k', 'b', 'd', 'c', 'm');
INSERT INTO grid_files VALUES ('grid.png', 'fox_1', '');
INSERT INTO takes (job_id, number, outputs, end_time) VALUES (7, 1, '["a.png"]', '2025-08-09 12:30:01.250');
INSERT INTO webhooks (url, events, secret, last_event, worker_until) VALUES
    ('u', '[]', 's', 1, '2025-08-09 12:30:01.250');
INSERT INTO deliveries (webhook_id, event_id, subject, body, dead_at) VALUES
    (1, 1, 's', '{}', '2025-08-09 12:30:01.250');
INSERT INTO assets (id, hash, kept, bytes, content_type) VALUES ('a', 'h', 'a.png', 3, 'image/png');
INSERT INTO batches (id, name, kind, status, created_at) VALUES
    ('z', 'first', 'sweep', 'complete', '2025-08-09 12:30:01.250'),
    ('a', 'second', 'sweep', 'complete', '2025-08-09 12:30:01.250');
"""


@pytest.fixture
def kinds(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = getattr(request, "param", (S, S))
    return found


def between(ways: list[tuple[str, str]]) -> Any:
    """Run a test for copies from one kind of database to another."""
    return pytest.mark.parametrize("kinds", ways, ids=[f"{source}-{target}" for source, target in ways], indirect=True)


@pytest.fixture
def full(kinds: tuple[str, str], tmp_path: Path) -> Iterator[str]:
    """A database with rows in every table, in which the newest job was removed."""
    with new_place(kinds[0], tmp_path, "full") as place:
        asyncio.run(fill(place))
        by_hand(place, ODD)
        if kinds[0] == P:  # several rows for the same ten seconds
            by_hand(
                place,
                "UPDATE endings SET jobs = 3 WHERE jobs = 4; INSERT INTO endings "
                "SELECT at, status, 1 FROM endings WHERE at = '2025-08-09 12:30:50.000'",
            )
        yield place


@pytest.fixture
def target(kinds: tuple[str, str], tmp_path: Path) -> Iterator[str]:
    with new_place(kinds[1], tmp_path, "copy") as place:
        yield place


async def fill(place: str) -> None:
    store = open_store(place)
    await submit_one(store, "one", template=Template.of({"1": {"class_type": "A", "inputs": {}}}))
    leased = await lease_one(store)
    await store.run(ops.claim_files, leased.lease, ["one.png"], 30)
    await queue(store, 3)
    await land(store, [leased, *await lease_of(store, "fox_1", most=2)])
    await store.run(ops.create_token, "studio", Role.ADMIN, "hash")
    last = await submit_one(store, "last")
    await store.run(ops.cancel_jobs, [last])
    await store.run(ops.remove_jobs, [last])
    await store.close()


def copy(source: str | Path, target: str | Path, told: Any = lambda *_: None) -> list[ComparedTable]:
    migrate_store(target)
    there, here = open_tables(source), open_tables(target)
    try:
        return copy_tables(there, here, told)
    finally:
        there.close()
        here.close()


def content(place: str) -> list[str]:
    """Every row as a text. Rows that count together are summed."""
    sums = {
        "endings": "at, status, CAST(sum(jobs) AS bigint) AS jobs FROM endings GROUP BY at, status",
        "job_counts": "status, CAST(sum(jobs) AS bigint) AS jobs FROM job_counts GROUP BY status",
    }
    queries = [
        f"SELECT '{table}' AS \"table\", {sums.get(table, f'* FROM {table}')}" for table in (*TABLES, "job_counts")
    ]
    return sorted(json.dumps({**row, "place": None}, sort_keys=True) for row in by_hand(place, ";".join(queries)))


def in_order(place: str) -> list[str]:
    order = "place" if place.startswith("postgresql") else "rowid"
    return [row["id"] for row in by_hand(place, f"SELECT id FROM batches ORDER BY created_at, {order}")]


@between(EVERY_WAY)
def test_every_value_of_every_table_is_there(full: str, target: str) -> None:
    before = content(full)
    assert {json.loads(row)["table"] for row in before} == {*TABLES, "job_counts"}, "the test has rows in each"
    found = copy(full, target)
    assert [each.name for each in found if not each.is_same] == []
    assert content(target) == before == content(full)
    assert in_order(target) == in_order(full) == ["z", "a", "fox_1"]
    assert "copying" not in {row["key"] for row in by_hand(target, "SELECT key FROM about")}
    assert by_hand(target, "SELECT value FROM about WHERE key = 'version'") == (
        [{"value": "14"}] if target.startswith("postgresql") else []
    )


@between([(S, P)])
def test_there_and_back_it_is_the_same(full: str, target: str, tmp_path: Path) -> None:
    there, back = copy(full, target), copy(target, tmp_path / "back.db")
    assert {each.name: each.digest for each in back} == {each.name: each.digest for each in there}
    assert content(str(tmp_path / "back.db")) == content(full)


def test_no_table_and_no_column_is_forgotten(tmp_path: Path) -> None:
    with new_place(P, tmp_path, "") as url:
        migrate_store(tmp_path / "new.db")
        here, there = open_tables(tmp_path / "new.db"), open_tables(url)
        tables = by_hand(tmp_path / "new.db", "SELECT name FROM sqlite_schema WHERE type = 'table'")
        names = {row["name"] for row in tables if not row["name"].startswith(("job_names", "prompt", "sqlite_"))}
        assert names == {*TABLES, "about", "agents", "job_counts"}
        for table in TABLES:
            assert set(here.columns(table)) == set(there.columns(table)), table
        types = by_hand(
            url, "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        )
        times = {row["column_name"] for row in types if row["data_type"].startswith("timestamp")}
        assert {column for table in TABLES for column in here.columns(table)} & times <= TIMES | MORE_TIMES
        here.close()
        there.close()


def test_times_come_as_times(full: str) -> None:
    by_hand(
        full,
        "UPDATE jobs SET start_time = '2025-08-09 12:30:01' WHERE config_name = 'one';"
        "UPDATE jobs SET start_time = 'last tuesday' WHERE config_name = 'fox_1_0'",
    )
    tables = open_tables(full)
    known = dict(tables.rows("jobs", ["config_name", "start_time"], None, 100))
    tables.close()
    assert known["two"] == datetime(2025, 8, 9, 12, 30, 1, 250_000, timezone.utc)
    assert known["one"] == datetime(2025, 8, 9, 12, 30, 1, 0, timezone.utc)
    assert known["fox_1_0"] == "last tuesday"


@between([(S, S), (S, P), (P, S)])
async def test_new_ids_follow_and_triggers_work(full: str, target: str) -> None:
    copy(full, target)
    [before] = by_hand(full, "SELECT max(id) AS event FROM events")
    old, store = open_store(full), open_store(target)
    waiting = (await store.run(ops.count_jobs)).pending
    new = await submit_one(store, "new")
    assert new == await submit_one(old, "new")
    await old.close()
    assert (await store.run(ops.count_jobs)).pending == waiting + 1
    [told] = by_hand(target, f"SELECT id FROM events WHERE job_id = {new}")
    assert told["id"] > before["event"]
    assert (await lease_one(store)).lease.job_id, "attempts have new ids, too"
    await queue(store, 1, "new_batch")
    assert in_order(target)[-1] == "new_batch"
    await store.close()


@between([(S, P), (P, S)])
def test_ids_of_events_that_are_gone_are_not_given_again(full: str, target: str) -> None:
    [before] = by_hand(full, "SELECT max(id) AS event FROM events")
    by_hand(full, "DELETE FROM events")
    copy(full, target)
    by_hand(target, "INSERT INTO events (at, event) VALUES ('2025-08-09 12:30:01.250', 'server.up')")
    [told] = by_hand(target, "SELECT id FROM events")
    assert told["id"] > before["event"]


@between([(P, S)])
async def test_events_with_gaps_between_their_ids_are_kept(
    full: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy(full, target)
    store, before = open_store(target), by_hand(target, "SELECT id FROM events")
    assert before[-1]["id"] - before[0]["id"] > event_log.KEPT
    assert await store.run(ops.prune_events) == 0
    monkeypatch.setattr(event_log, "KEPT", 2)
    assert await store.run(ops.prune_events) == len(before) - 2
    await store.close()


@between([(S, S), (P, P)])
async def test_it_is_the_same_memory_in_another_place(full: str, target: str, tmp_path: Path) -> None:
    old = await identities(full)
    log = MetricsLog(tmp_path / "log.ndjson", old[0])
    assert log.try_open()
    log.close()
    copy(full, target)
    copy(target, tmp_path / "again.db")
    identity, earlier = await identities(str(tmp_path / "again.db"))
    assert identity not in (old[0], *earlier), "prompts of the one are not taken for prompts of the other"
    assert len({*earlier}) == 2, "nor are those of a database of the same name at another server"
    assert old[0] in earlier, "the metrics log goes on"
    token = "SELECT value FROM about WHERE key = 'identity'"
    assert by_hand(full, token) == by_hand(tmp_path / "again.db", token)


async def identities(place: str) -> tuple[str, Sequence[str]]:
    store = open_store(place)
    found = store.identity, await store.run(ops.earlier_identities)
    await store.close()
    return found


@between(EITHER_TARGET)
def test_a_copy_that_broke_off_goes_on(full: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "ROWS_AT_ONCE", 2)
    steps = list[str]()

    class Killed(Exception):
        pass

    def kill(what: str, _rows: int) -> None:
        steps.append(what)
        if steps.count("copied jobs") == 2 or (steps.count("copied endings") == 1 and len(steps) > 3):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            copy(full, target, kill)
        with pytest.raises(DatabaseUnusable, match="unfinished copy"):
            open_store(target)
        with pytest.raises(CopyRefused, match="itself an unfinished copy"):
            copy(target, tmp_path / "other.db")
    again: list[str] = []
    found = copy(full, target, lambda what, _: again.append(what))
    assert "copied templates" not in again
    assert all(each.is_same for each in found)
    assert content(target) == content(full)


@between(EITHER_SOURCE)
def test_what_changed_meanwhile_is_named(full: str, target: str) -> None:
    def change(what: str, _rows: int) -> None:
        if what == "copied files":
            by_hand(full, "UPDATE jobs SET priority = 7 WHERE config_name = 'two'")

    found = copy(full, target, change)
    assert [each.name for each in found if not each.is_same] == ["jobs"]
    answer = call_e3("db", "copy", full, target)
    assert (answer.returncode, answer.stderr.startswith("e3: jobs changed while")) == (1, True)
    assert "DIFFERS" in answer.stdout


@between(EITHER_TARGET)
def test_only_an_empty_target_is_taken(full: str, target: str, tmp_path: Path) -> None:
    with pytest.raises(CopyRefused, match="not empty"):
        copy(full, full)
    migrate_store(target)
    by_hand(target, "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('a', 'T2I', 'w', 'done')")
    before = content(target)
    answer = call_e3("db", "copy", full, target)
    assert (answer.returncode, "is not empty (jobs)" in answer.stderr) == (1, True)
    assert content(target) == before
    by_hand(full, "ALTER TABLE jobs ADD COLUMN mine TEXT")
    with pytest.raises(CopyRefused, match="the column mine"):
        copy(full, tmp_path / "other.db")
    with pytest.raises(CopyRefused, match="of another database"):
        copy(target, tmp_path / "other.db")


@between(EITHER_SOURCE)
def test_a_database_in_use_is_refused(full: str, tmp_path: Path) -> None:
    by_hand(
        full,
        "INSERT INTO agents (worker_id, host, lock) VALUES ('gpu-7', 'far', '/x.lock'), ('dead', 'far', '/y.lock');"
        "UPDATE agents SET heartbeat_at = '2025-08-09 12:30:01.250' WHERE worker_id = 'dead'",
    )
    answer = call_e3("db", "copy", full, str(tmp_path / "new.db"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"e3: {shown_database(full)} is in use (gpu-7): stop e3 run")
    assert not (tmp_path / "new.db").exists()


UNFIT = {
    "start_time = 'last tuesday'": "start_time holds 'last tuesday', PostgreSQL takes only a time such as",
    "priority = 'high'": "priority holds 'high', PostgreSQL takes only a whole number",
    "priority = 1e30": "priority holds 1e+30, PostgreSQL takes only a whole number",
    "duration = 'long'": "duration holds 'long', PostgreSQL takes only a number",
    "metadata = 'a' || char(0)": r"metadata holds 'a\x00', PostgreSQL takes only a text without NUL",
    "worker_id = x'ff00'": r"worker_id holds b'\xff\x00', PostgreSQL takes only a text",
}


@between(TO_POSTGRES)
def test_what_postgresql_cannot_have_is_named(full: str, target: str) -> None:
    for change, words in UNFIT.items():
        by_hand(full, f"UPDATE jobs SET {change} WHERE id = 1")
        with pytest.raises(CopyRefused, match=re.escape(f"jobs 1: {words}")):
            copy(full, target)
        by_hand(full, f"UPDATE jobs SET {change.partition(' ')[0]} = NULL WHERE id = 1")
    with pytest.raises(DatabaseUnusable, match="unfinished copy"):
        open_store(target)
    assert all(each.is_same for each in copy(full, target)), "corrected, the same command goes on"


@between(EITHER_TARGET)
def test_texts_of_another_encoding_and_times_of_another_form_are_taken(full: str, target: str) -> None:
    by_hand(
        full,
        "UPDATE jobs SET error_trace = CAST(x'67e9e9' AS TEXT), end_time = '2025-08-09T12:30:01Z' "
        "WHERE config_name = 'two'; UPDATE rejections SET reason = CAST(x'e4' AS TEXT)",
    )
    assert all(each.is_same for each in copy(full, target))
    job = "SELECT error_trace, end_time, reason FROM jobs, rejections WHERE config_name = 'two'"
    assert by_hand(target, job) == [{"error_trace": "géé", "end_time": "2025-08-09 12:30:01.000", "reason": "ä"}]


@between(EITHER_TARGET)
def test_the_command_prints_every_table(full: str, target: str, tmp_path: Path) -> None:
    answer = call_e3("db", "copy", f"sqlite:///{full}", target)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(TABLES)
    assert {line.split()[-1] for line in lines[:-1]} == {"same"}
    listed = call_e3("db", "copy", "--json", full, str(tmp_path / "more.db"))
    assert {each["same"] for each in json.loads(listed.stdout)} == {True}
