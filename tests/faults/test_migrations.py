"""Row 20: a migration that was killed is run again; older databases are brought up to date, newer ones refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from comfyui_agent.domain.tokens import Role, hash_of, matching
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.errors import DatabaseUnusable
from comfyui_agent.store.sqlite.migrator import MIGRATIONS, NEWEST, OURS
from support.sampling import some
from support.stores import Rows, in_the_shell, lease_one

pytestmark = pytest.mark.skipif(os.name != "posix", reason="killed with a signal, and made by forking")

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}")

ROWS = """
INSERT INTO jobs (config_name, job_type, workflow_id, status, priority, run_count, retries_attempted, retry_limit,
    start_time, end_time, duration, error_trace, metadata, worker_id, lease_expires_at) VALUES
 ('waits', 'T2I', 'wf', 'pending', 20, 0, 0, NULL, NULL, NULL, NULL, NULL, '{"a": 1}', NULL, NULL),
 ('runs', 'T2I', 'wf', 'processing', 50, 1, 0, 4, '2025-08-09T12:30:01', NULL, NULL, NULL, NULL, 'old-agent',
    '2025-08-09T12:35:01'),
 ('ended', 'T2I', 'wf', 'done', 50, 1, 0, NULL, '2025-08-09T12:30:01.250', '2025-08-09T12:30:11.250000', 10.0, NULL,
    NULL, NULL, NULL),
 ('broke', 'T2V', 'wf', 'failed', 50, 3, 2, NULL, '2025-08-09 14:30:01+02:00', '2025-08-09T12:31:00Z', 59.0, 'boom',
    NULL, NULL, NULL);
"""

KILL_AT_EVERY_STATEMENT = """
import os, shutil, signal, sys
from pathlib import Path
import apsw
from comfyui_agent.store.connect import migrate_store

original, path = Path(sys.argv[1]), Path(sys.argv[2])

def migrate(deadly=0):
    statements = 0

    def trace(cursor, sql, bindings):
        nonlocal statements
        statements += 1
        if statements == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    apsw.connection_hooks.append(lambda database: setattr(database, "exec_trace", trace))
    migrate_store(path)
    with apsw.Connection(str(path)) as database:
        assert database.execute("PRAGMA integrity_check").get == "ok"
        assert database.execute("PRAGMA user_version").get == int(sys.argv[3])
    database.close()

def in_a_fork(work):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)

deadly = 1
while True:
    for leftover in path.parent.glob(path.name + "*"):
        leftover.unlink()
    shutil.copyfile(original, path)
    status = in_a_fork(lambda: migrate(deadly))
    if status == 0:
        break
    assert os.WIFSIGNALED(status), status
    assert in_a_fork(migrate) == 0
    deadly += int(sys.argv[4])
print(deadly)
"""

MANY_AT_ONCE = """
import multiprocessing, sys
from pathlib import Path
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
import asyncio

def one(barrier, path):
    barrier.wait(60)
    async def main():
        store = open_store(path)
        assert (await store.run(ops.count_jobs)).pending == int(sys.argv[3])
        await store.close()
    asyncio.run(main())

context = multiprocessing.get_context("fork")
for round in range(int(sys.argv[2])):
    path = sys.argv[1].format(round)
    barrier = context.Barrier(6)
    processes = [context.Process(target=one, args=(barrier, path)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
"""


def make_version(path: Path, version: int) -> None:
    """A database as an older E3, or a person with the documented statements, left it."""
    if version == 0:
        in_the_shell(path, MIGRATIONS[1].read_text(encoding="utf-8") + ROWS)
        return
    in_the_shell(path, "PRAGMA journal_mode = wal")
    for number in range(1, version + 1):
        rows = ROWS if number == 1 else ""
        in_the_shell(path, MIGRATIONS[number].read_text(encoding="utf-8") + rows)
    in_the_shell(path, f"PRAGMA user_version = {version}; PRAGMA application_id = {OURS}")


def schema_of(path: Path) -> Rows:
    return in_the_shell(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")


async def migrated(path: Path) -> Path:
    await open_store(path).close()
    return path


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


@pytest.mark.parametrize("version", range(NEWEST + 1))
async def test_from_every_version_the_newest_is_reached_and_is_the_same(tmp_path: Path, version: int) -> None:
    make_version(tmp_path / "old.db", version)
    old, new = await migrated(tmp_path / "old.db"), await migrated(tmp_path / "new.db")
    assert schema_of(old) == schema_of(new)
    assert in_the_shell(old, "PRAGMA user_version") == [{"user_version": NEWEST}]
    assert in_the_shell(old, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    before = schema_of(old)
    await migrated(old)
    assert schema_of(old) == before


@pytest.mark.parametrize("version", range(NEWEST))
async def test_jobs_from_before_are_kept_as_they_were(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    make_version(path, version)
    store = open_store(path)
    jobs = {job.config_name: job for job in await store.run(ops.list_jobs)}
    assert {name: job.status.value for name, job in jobs.items()} == {
        "waits": "pending",
        "runs": "processing",
        "ended": "done",
        "broke": "failed",
    }
    counts = await store.run(ops.count_jobs)
    assert (counts.pending, counts.processing, counts.done, counts.failed) == (1, 1, 1, 1)
    assert (jobs["waits"].priority, jobs["waits"].metadata) == (20, '{"a": 1}')
    assert (jobs["broke"].run_count, jobs["broke"].retries_attempted, jobs["broke"].error_trace) == (3, 2, "boom")
    assert (jobs["ended"].duration, jobs["runs"].retry_limit) == (10.0, 4)
    assert (await lease_one(store)).config_name == "waits"
    assert await store.run(ops.put_back_unattended, "host") == 1
    assert (await lease_one(store)).config_name == "runs"
    await store.close()


@pytest.mark.parametrize("tokens", [0, 2])
async def test_tokens_from_before_go_on_and_access_is_as_closed_as_it_was(tmp_path: Path, tokens: int) -> None:
    path = tmp_path / "old.db"
    make_version(path, 5)
    for number in range(3):
        said = f"('studio', 'admin', '{hash_of(str(number))}')"
        in_the_shell(path, f"INSERT INTO tokens (name, role, hash) VALUES {said}")
    in_the_shell(path, f"DELETE FROM tokens WHERE id > {tokens}")
    store = open_store(path)
    access = await store.run(ops.read_access)
    assert (access.is_closed, [token.id for token in access.tokens]) == (tokens > 0, list(range(1, tokens + 1)))
    for number in range(tokens):
        found = matching(str(number), access.tokens)
        assert found is not None
        assert (found.role, found.is_valid("2999-01-01 00:00:00.000")) == (Role.ADMIN, True)
    assert (await store.run(ops.create_token, "new", Role.READ, hash_of("new"))).id == 4, "an id is never given twice"
    await store.close()


async def test_times_from_before_are_written_as_all_others_and_mean_the_same(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    make_version(path, 0)
    await migrated(path)
    rows = {row["config_name"]: row for row in in_the_shell(path, "SELECT * FROM jobs")}
    assert (rows["runs"]["start_time"], rows["runs"]["lease_expires_at"]) == (
        "2025-08-09 12:30:01.000",
        "2025-08-09 12:35:01.000",
    )
    assert (rows["ended"]["start_time"], rows["ended"]["end_time"]) == (
        "2025-08-09 12:30:01.250",
        "2025-08-09 12:30:11.250",
    )
    assert (rows["broke"]["start_time"], rows["broke"]["end_time"]) == (
        "2025-08-09 12:30:01.000",
        "2025-08-09 12:31:00.000",
    )
    assert rows["waits"]["start_time"] is None
    assert all(TIME.fullmatch(row["created_at"]) for row in rows.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("one_in", some([11, 1], 2))
def test_a_migration_killed_at_any_statement_is_run_again_and_succeeds(tmp_path: Path, one_in: int) -> None:
    original, path = tmp_path / "original.db", tmp_path / "killed.db"
    make_version(original, 0)
    assert int(run(KILL_AT_EVERY_STATEMENT, original, path, NEWEST, one_in)) > 20
    rows = in_the_shell(path, "SELECT jobs FROM job_counts WHERE status <> 'attention'")
    assert [row["jobs"] for row in rows] == [1, 1, 1, 1]


@pytest.mark.parametrize("version", some([None, *range(NEWEST)], NEWEST + 1), ids=str)
def test_several_processes_may_bring_a_database_up_to_date_at_once(tmp_path: Path, version: int | None) -> None:
    rounds = 4 if version is None else 15
    for number in range(rounds):
        if version is not None:
            make_version(tmp_path / f"{number}.db", version)
    run(MANY_AT_ONCE, tmp_path / "{}.db", rounds, 0 if version is None else 1)
    for number in range(rounds):
        assert in_the_shell(tmp_path / f"{number}.db", "PRAGMA user_version") == [{"user_version": NEWEST}]
        assert in_the_shell(tmp_path / f"{number}.db", "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


async def test_a_newer_database_is_refused_in_one_line(tmp_path: Path) -> None:
    path = await migrated(tmp_path / "new.db")
    in_the_shell(path, f"PRAGMA user_version = {NEWEST + 1}")
    untouched = shutil.copyfile(path, tmp_path / "copy.db")
    with pytest.raises(DatabaseUnusable, match=r"^[^\n]*install the newer E3 again$"):
        open_store(path)
    assert path.read_bytes() == untouched.read_bytes()
