"""Row 18: many processes, a long reader and the shell on one SQLite file. Nobody meets a lock, and the log shrinks."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.sqlite.connection import connect
from comfyui_agent.store.store import Store
from support.stores import in_the_shell, submit_one

Start = Callable[..., Awaitable[Process]]
PROCESSES = 8
FEW_MEGABYTES = 5 * 1024 * 1024

WORKER = """
import asyncio, sys
from comfyui_agent.domain.jobs import NewJob
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import open_store
from comfyui_agent.store.records import Window

path, name, own, total = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    store = open_store(path)
    submitting = asyncio.create_task(submit(store))
    while (await store.run(ops.count_jobs)).done < total:
        prompt_ids = [mint_prompt_id() for _ in range(4)]
        leased = await store.run(ops.lease_jobs, name, Window(name, 4), prompt_ids, 30.0)
        await asyncio.gather(*(finish(store, each) for each in leased))
    await submitting
    await store.close()

async def submit(store):
    for number in range(own):
        assert await store.run(ops.submit_jobs, [NewJob(f"{name}-{number}", "T2I", "wf")]) != [None]

async def finish(store, leased):
    await store.run(ops.renew_leases, name, 30.0)
    await store.run(ops.complete_job, leased.lease, [f"{leased.lease.job_id}.png"], 1.0)
    print(leased.lease.job_id)

asyncio.run(main())
"""

LONG_READER = """
import sys
from pathlib import Path
import apsw

database = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
database.execute("BEGIN")
print(database.execute("SELECT count(*) FROM jobs").get, flush=True)
sys.stdin.readline()
print(database.execute("SELECT count(*) FROM jobs").get, flush=True)
database.close()
"""


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts scripts; none is left running."""
    started: list[Process] = []

    async def begin(script: str, *arguments: object) -> Process:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        started.append(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE))
        return started[-1]

    yield begin
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.mark.parametrize(
    ("each", "typed"),
    [
        pytest.param(40, 20, id="short"),
        pytest.param(1500, 400, id="long", marks=[pytest.mark.slow, pytest.mark.timing, pytest.mark.timeout(900)]),
    ],
)
async def test_nobody_meets_a_lock_and_every_job_is_done_once(
    tmp_path: Path, start: Start, each: int, typed: int
) -> None:
    path = tmp_path / "shared.db"
    ours = open_store(path)
    total = PROCESSES * each + typed
    reader = await start(LONG_READER, path)
    assert await line_of(reader) == "0"
    workers = [await start(WORKER, path, f"worker-{number}", each, total) for number in range(PROCESSES)]
    await asyncio.to_thread(type_jobs, path, typed)
    answers = await asyncio.gather(*(worker.communicate() for worker in workers))
    assert [(worker.returncode, errors) for worker, (_, errors) in zip(workers, answers, strict=True)] == [
        (0, b"")
    ] * PROCESSES
    finished = Counter(number for printed, _ in answers for number in printed.split())
    assert set(finished.values()) == {1}
    assert len(finished) == total
    counts = await ours.run(ops.count_jobs)
    assert (counts.done, counts.pending, counts.processing, counts.failed) == (total, 0, 0, 0)
    assert in_the_shell(path, "SELECT count(*) AS n FROM events WHERE event = 'job.done'") == [{"n": total}]
    assert in_the_shell(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    await the_log_shrinks_once_the_reader_leaves(ours, reader, path)
    await ours.close()


async def the_log_shrinks_once_the_reader_leaves(ours: Store, reader: Process, path: Path) -> None:
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size > FEW_MEGABYTES
    assert reader.stdin is not None
    reader.stdin.write(b"enough\n")
    assert await line_of(reader) == "0"
    assert await reader.wait() == 0
    for number in range(3):
        await submit_one(ours, f"after-{number}")
    assert log.stat().st_size <= FEW_MEGABYTES


def type_jobs(path: Path, jobs: int) -> None:
    """As a person with the shell; it fails here if the shell prints an error."""
    for number in range(jobs):
        in_the_shell(
            path,
            "INSERT INTO jobs (config_name, job_type, workflow_id, status) "
            f"VALUES ('typed-{number}', 'T2I', 'wf', 'pending');"
            "UPDATE jobs SET priority = 1 WHERE status = 'pending' AND config_name LIKE 'typed-%'",
        )


async def line_of(process: Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 30)).decode().strip()


async def test_while_another_program_holds_the_lock_callers_wait_and_then_get_their_answer(
    tmp_path: Path, start: Start
) -> None:
    path = tmp_path / "held.db"
    store = open_store(path)
    holder = await start(HOLDER, path)
    assert await line_of(holder) == "held"
    waiting = [asyncio.create_task(submit_one(store, str(number))) for number in range(5)]
    assert (await store.run(ops.count_jobs)).pending == 0
    done, _ = await asyncio.wait(waiting, timeout=0.3)
    assert not done
    assert holder.stdin is not None
    holder.stdin.write(b"enough\n")
    assert len(set(await asyncio.wait_for(asyncio.gather(*waiting), 20))) == 5
    await holder.communicate()
    await store.close()


def test_a_long_waiter_for_a_lock_looks_less_often_so_that_others_get_it(tmp_path: Path) -> None:
    """The shell looks every tenth of a second: beside programs that look every few milliseconds it would never win."""
    holder = connect(tmp_path / "held.db", wait=lambda _: False)
    looks: list[float] = []
    waiter = connect(tmp_path / "held.db", wait=lambda seconds: looks.append(seconds) or seconds < 1)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(apsw.BusyError):
        waiter.execute("BEGIN IMMEDIATE")
    assert sum(seconds > 0.5 for seconds in looks) < 50
    holder.close()
    waiter.close()


HOLDER = """
import sys
import apsw

database = apsw.Connection(sys.argv[1])
database.execute("BEGIN IMMEDIATE; INSERT INTO jobs (config_name, job_type, workflow_id, status) "
    "VALUES ('never', 'T2I', 'wf', 'pending')")
print("held", flush=True)
sys.stdin.readline()
database.execute("ROLLBACK")
"""
