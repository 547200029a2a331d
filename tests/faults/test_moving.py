"""A prune and a copy that are killed at any statement: the next run finishes them, nothing is lost or left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import postgres

pytestmark = pytest.mark.skipif(os.name != "posix", reason="killed with a signal, and made by forking")

CASES = [
    ("prune", 23),
    ("copy", 120),
    ("move", 15),
    pytest.param("prune", 3, marks=pytest.mark.slow),
    pytest.param("copy", 5, marks=pytest.mark.slow),
    pytest.param("move", 1, marks=pytest.mark.slow),
]

FORKS = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
import apsw, psycopg
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.engine.retention import Ages, prune
from comfyui_agent.store import connect, copying, retention
from comfyui_agent.store import operations as ops
from comfyui_agent.domain.jobs import NewJob

folder, step = Path(sys.argv[1]), int(sys.argv[2])
original, path, target = folder / "original.db", folder / "work.db", sys.argv[4] or folder / "target.db"
place = Workspace(folder / "workspace", Settings())
results = place.root / "jobs/finished/image"
copying.ROWS_AT_ONCE = retention.JOBS_AT_ONCE = 3
retention.ROWS_AT_ONCE = 4

async def no_pause(_):
    pass

async def fill():
    store = connect.open_store(original)
    await store.run(ops.submit_jobs, [NewJob(f"job_{n}", "T2I", "w") for n in range(9)])
    await store.close()
    with apsw.Connection(str(original)) as database:
        database.execute("UPDATE jobs SET status = 'done', end_time = '2025-01-01 00:00:00.000' WHERE id < 9;"
            "INSERT INTO batches (id, name, kind, status, completed_at) "
            "VALUES ('b', 'b', 'sweep', 'complete', '2025-01-01 00:00:00.000');"
            "UPDATE jobs SET batch_id = 'b', batch_index = id WHERE id > 4 AND id < 9;"
            "INSERT INTO files (path, job_id) SELECT 'jobs/finished/image/' || id || '.png', id FROM jobs WHERE id < 9;"
            "INSERT INTO grid_files VALUES ('jobs/finished/image/b/grid.png', 'b', '');"
            "UPDATE events SET at = '2025-01-01 00:00:00.000'")
    database.close()

def rows(file):
    with apsw.Connection(str(file)) as database:
        assert database.execute("PRAGMA integrity_check").get == "ok"
        tables = [*copying.TABLES, "job_counts"]
        found = {table: database.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
    database.close()
    return found

async def prune_it():
    store = connect.open_store(path)
    await prune(store, place, Ages(jobs=86400.0, events=86400.0), no_pause, 0)
    await store.close()

def copy_it(source=path, target=target):
    connect.migrate_store(target)
    there, here = connect.open_tables(source), connect.open_tables(target)
    found = copying.copy_tables(there, here, lambda *_: None)
    assert all(each.is_same for each in found)
    there.close()
    here.close()

def in_a_fork(work, deadly=0):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    statements = 0

    def trace(*_):
        nonlocal statements
        statements += 1
        if statements == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    if sys.argv[4]:
        execute = psycopg.Cursor.execute
        psycopg.Cursor.execute = lambda *args, **named: trace() and execute(*args, **named)
    else:
        apsw.connection_hooks.append(lambda database: setattr(database, "exec_trace", trace))
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)

def check_pruned():
    found = rows(path)
    assert [row[1] for row in found["jobs"]] == ["job_8"], found["jobs"]
    assert not found["batches"] and not found["files"] and not found["grid_files"]
    assert len(found["events"]) == 1, found["events"]
    assert dict(found["job_counts"])["done"] == 0
    assert [file.name for file in results.rglob("*")] == ["not_ours.png"]

def check_rows_of_files():
    "While it is unfinished, no file is without its row."
    found = rows(path)
    known = {path.rpartition("/")[2] for path, *_ in [*found["files"], *found["grid_files"]]}
    assert {file.name for file in results.rglob("*.png")} <= known | {"not_ours.png"}

def check_copied():
    before, after = rows(path), rows(target)
    assert before == after
    store = connect.open_store(target)
    asyncio.run(store.close())

def check_moved():
    asyncio.run(connect.open_store(target).close())
    copy_it(target, folder / "back.db")
    assert rows(path) == rows(folder / "back.db")

works = {
    "prune": (lambda: asyncio.run(prune_it()), check_pruned),
    "copy": (copy_it, check_copied),
    "move": (copy_it, check_moved),
}
work, check = works[sys.argv[3]]
assert in_a_fork(lambda: asyncio.run(fill())) == 0
deadly = 1
while True:
    for leftover in [*folder.glob("work.db*"), *folder.glob("target.db*")]:
        leftover.unlink()
    shutil.copyfile(original, path)
    (results / "b").mkdir(parents=True, exist_ok=True)
    for name in [*(f"{n}.png" for n in range(1, 9)), "b/grid.png", "not_ours.png"]:
        (results / name).write_bytes(b"png")
    status = in_a_fork(work, deadly)
    if status == 0:
        break
    assert os.WIFSIGNALED(status), status
    deadly += step
    if sys.argv[3] == "move":
        continue  # the next run is killed, too, a little later
    if sys.argv[3] == "prune":
        assert in_a_fork(check_rows_of_files) == 0
    assert in_a_fork(work) == 0
    assert in_a_fork(check) == 0
assert in_a_fork(check) == 0
print(deadly)
"""


@pytest.mark.slow
@pytest.mark.timeout(320)
@pytest.mark.parametrize(("what", "step"), CASES)
def test_killed_at_any_statement_it_is_finished_by_the_next_run(tmp_path: Path, what: str, step: int) -> None:
    url = postgres.new_database() if what == "move" else ""
    command = [sys.executable, "-c", FORKS, str(tmp_path), str(step), what, url]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert int(answer.stdout) > 50, "it was killed before its end"
