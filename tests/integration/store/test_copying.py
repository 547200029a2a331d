"""`e3 db copy`: every table with every value, sequences go on, triggers work, and only a whole copy is a database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.tokens import Role
from comfyui_agent.events.log import MetricsLog
from comfyui_agent.store import copying
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store, open_store, open_tables
from comfyui_agent.store.copying import TABLES, ComparedTable, copy_tables
from comfyui_agent.store.errors import CopyRefused, DatabaseUnusable
from support.store_batches import land, lease_of, queue
from support.stores import Rows, in_the_shell, lease_one, submit_one
from support.workspaces import call_e3

ODD = """
INSERT INTO jobs (config_name, job_type, workflow_id, status, priority, metadata, duration, start_time) VALUES
    ('späť ☃', 'T2I', 'wf', 'failed', NULL, '{"a": [1, null, "é"]}', 1e-7, 'last tuesday'),
    ('two', 'T2I', 'wf', 'done', -3, '', 0.1, '2025-08-09 12:30:01.250');
INSERT INTO stuck_prompts (prompt_id, server, reason) VALUES ('p', 's', 'r');
INSERT INTO endings VALUES ('2025-08-09 12:30:40.000', 'done', 3), ('2025-08-09 12:30:50.000', 'done', 4);
INSERT INTO timings VALUES ('n', 's', 1, 0.30000000000000004, 0, NULL);
INSERT INTO server_sets (server) VALUES ('s');
INSERT INTO rejections (path, reason) VALUES ('jobs/x.yaml', 'why');
INSERT INTO server_states (server, state) VALUES ('s', 'paused');
INSERT INTO sessions (hash, token_id) VALUES ('h', 1);
INSERT INTO batch_endings VALUES ('fox_1', 'cancelled', 'why');
INSERT INTO ending_members VALUES (77, 'fox_1');
INSERT INTO idempotent_requests (key, scope, digest, creator, made) VALUES
    ('k', 'a', 'd', 'c', 'm'), ('k', 'b', 'd', 'c', 'm');
INSERT INTO grid_files VALUES ('grid.png', 'fox_1', '');
"""


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A database with rows in every table, in which the newest job was removed."""
    asyncio.run(fill(tmp_path / "full.db"))
    in_the_shell(tmp_path / "full.db", ODD)
    return tmp_path / "full.db"


async def fill(path: Path) -> None:
    store = open_store(path)
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


def copy(source: Path, target: Path, told: Any = lambda *_: None) -> list[ComparedTable]:
    migrate_store(target)
    there, here = open_tables(source), open_tables(target)
    try:
        return copy_tables(there, here, told)
    finally:
        there.close()
        here.close()


def content(path: Path) -> Rows:
    statements = [f"SELECT '{table}' AS \"table\", * FROM {table} ORDER BY 1, 2, 3" for table in TABLES]
    return in_the_shell(path, ";\n".join(statements))


def test_every_value_of_every_table_is_there(full: Path, tmp_path: Path) -> None:
    before = content(full)
    assert {row["table"] for row in before} == set(TABLES), "the test has rows in each"
    found = copy(full, tmp_path / "copy.db")
    assert [each.name for each in found if not each.is_same] == []
    assert content(tmp_path / "copy.db") == before == content(full)
    assert "copying" not in {row["key"] for row in in_the_shell(tmp_path / "copy.db", "SELECT key FROM about")}


def test_no_table_is_forgotten(tmp_path: Path) -> None:
    migrate_store(tmp_path / "new.db")
    tables = in_the_shell(tmp_path / "new.db", "SELECT name FROM sqlite_schema WHERE type = 'table'")
    names = {row["name"] for row in tables if not row["name"].startswith(("job_names", "sqlite_"))}
    assert names == {*TABLES, "about", "agents"}
    copied = open_tables(tmp_path / "new.db")
    times = {column for table in TABLES for column in copied.columns(table) if column.endswith("_at")}
    for column in times:
        assert column in copying_times(), column
    copied.close()


def copying_times() -> frozenset[str]:
    from comfyui_agent.store.sqlite.session import TIMES
    from comfyui_agent.store.sqlite.tables import MORE_TIMES

    return TIMES | MORE_TIMES


def test_times_come_as_times(full: Path) -> None:
    tables = open_tables(full)
    rows = tables.rows("jobs", ["config_name", "start_time"], None, 100)
    tables.close()
    known = dict(rows)
    assert known["two"] == datetime(2025, 8, 9, 12, 30, 1, 250_000, timezone.utc)
    assert known["späť ☃"] == "last tuesday"


async def test_new_ids_follow_and_triggers_work(full: Path, tmp_path: Path) -> None:
    copy(full, tmp_path / "copy.db")
    before = in_the_shell(full, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")[0]["seq"]
    store = open_store(tmp_path / "copy.db")
    waiting = (await store.run(ops.count_jobs)).pending
    assert await submit_one(store, "new") == before + 1
    assert (await store.run(ops.count_jobs)).pending == waiting + 1
    await store.close()


async def test_it_is_the_same_memory_in_another_place(full: Path, tmp_path: Path) -> None:
    old = await identities(full)
    log = MetricsLog(tmp_path / "log.ndjson", old[0])
    assert log.try_open()
    log.close()
    copy(full, tmp_path / "copy.db")
    copy(tmp_path / "copy.db", tmp_path / "again.db")
    identity, earlier = await identities(tmp_path / "again.db")
    assert identity not in (old[0], *earlier), "prompts of the one are not taken for prompts of the other"
    assert old[0] in earlier, "the metrics log goes on"
    token = "SELECT value FROM about WHERE key = 'identity'"
    assert in_the_shell(full, token) == in_the_shell(tmp_path / "again.db", token)


async def identities(path: Path) -> tuple[str, Sequence[str]]:
    store = open_store(path)
    found = store.identity, await store.run(ops.earlier_identities)
    await store.close()
    return found


def test_a_copy_that_broke_off_goes_on(full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "ROWS_AT_ONCE", 2)
    target, steps = tmp_path / "copy.db", list[str]()

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
    again: list[str] = []
    found = copy(full, target, lambda what, _: again.append(what))
    assert "copied templates" not in again
    assert all(each.is_same for each in found)
    assert content(target) == content(full)


def test_what_changed_meanwhile_is_named(full: Path, tmp_path: Path) -> None:
    def change(what: str, _rows: int) -> None:
        if what == "copied files":
            in_the_shell(full, "UPDATE jobs SET priority = 7 WHERE config_name = 'two'")

    found = copy(full, tmp_path / "copy.db", change)
    assert [each.name for each in found if not each.is_same] == ["jobs"]
    answer = call_e3("db", "copy", str(full), str(tmp_path / "copy.db"))
    assert (answer.returncode, answer.stderr.startswith("e3: jobs changed while")) == (1, True)
    assert "DIFFERS" in answer.stdout


def test_only_an_empty_target_is_taken(full: Path, tmp_path: Path) -> None:
    with pytest.raises(CopyRefused, match="not empty"):
        copy(full, full)
    other = tmp_path / "other.db"
    migrate_store(other)
    in_the_shell(
        other, "INSERT INTO jobs (config_name, job_type, workflow_id, status) VALUES ('a', 'T2I', 'w', 'done')"
    )
    before = content(other)
    answer = call_e3("db", "copy", str(full), str(other))
    assert (answer.returncode, "is not empty (jobs)" in answer.stderr) == (1, True)
    assert content(other) == before
    in_the_shell(full, "ALTER TABLE jobs ADD COLUMN mine TEXT")
    with pytest.raises(CopyRefused, match="the column mine"):
        copy(full, tmp_path / "copy.db")
    with pytest.raises(CopyRefused, match="of another database"):
        copy(other, tmp_path / "copy.db")


def test_a_database_in_use_is_refused(full: Path, tmp_path: Path) -> None:
    in_the_shell(
        full,
        "INSERT INTO agents (worker_id, host, lock) VALUES ('gpu-7', 'far', '/x.lock'), ('dead', 'far', '/y.lock');"
        "UPDATE agents SET heartbeat_at = '2025-08-09 12:30:01.250' WHERE worker_id = 'dead'",
    )
    answer = call_e3("db", "copy", str(full), str(tmp_path / "copy.db"))
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"e3: {full} is in use (gpu-7): stop e3 run")
    assert not (tmp_path / "copy.db").exists()


def test_the_command_prints_every_table(full: Path, tmp_path: Path) -> None:
    answer = call_e3("db", "copy", f"sqlite:///{full}", str(tmp_path / "copy.db"))
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(TABLES)
    assert {line.split()[-1] for line in lines[:-1]} == {"same"}
    listed = call_e3("db", "copy", "--json", str(full), str(tmp_path / "more.db"))
    assert {each["same"] for each in json.loads(listed.stdout)} == {True}
