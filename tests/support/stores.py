"""Databases to test the store with: one class for each kind, so that every kind passes the same tests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import apsw
import pytest

from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.operation import Operation
from comfyui_agent.store.records import Leased, OpenAttempt, Window
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.store import Store

Rows = list[dict[str, Any]]

SERVER = "http://gpu:8188"
WORKER = "first-agent"
HOST = "this-host"
LEASE_SECONDS = 30.0
TABLES = ("jobs", "attempts", "files", "events", "templates", "job_counts")

UNIX_EPOCH_MS = 210_866_760_000_000
"""The first of January 1970 in milliseconds of the Julian day."""

CHILD_SHELL = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)
database.row_factory = sqlite3.Row
statement = ""
for line in sys.stdin:
    statement += line
    if sqlite3.complete_statement(statement):
        rows = [dict(row) for row in database.execute(statement)]
        print(json.dumps(rows) if rows else "")
        statement = ""
"""


class Clock(Protocol):
    """What the database takes for the time. It stands still until it is moved."""

    def advance(self, seconds: float) -> None: ...

    def text(self) -> str:
        """Now, as the database writes it."""


class Database(Protocol):
    """One database, for as many stores as a test wants to open on it."""

    clock: Clock

    def open(self) -> Store: ...

    def by_hand(self, sql: str) -> Rows:
        """What a user gets who types this beside the running agents."""

    def commits(self, store: Store) -> int: ...

    async def close(self) -> None: ...


class SqliteClock(apsw.VFS):
    """SQLite asks its file system layer for the time: this one answers for all connections made through it."""

    def __init__(self) -> None:
        self.name = f"clock-{uuid.uuid4().hex}"
        self._milliseconds = int(time.time() * 1000)
        super().__init__(self.name, "")

    def advance(self, seconds: float) -> None:
        self._milliseconds += round(seconds * 1000)

    def text(self) -> str:
        whole, milliseconds = divmod(self._milliseconds, 1000)
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03}"

    def xCurrentTimeInt64(self) -> int:
        return self._milliseconds + UNIX_EPOCH_MS

    def xCurrentTime(self) -> float:
        return self.xCurrentTimeInt64() / 86_400_000


class SqliteDatabase:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "comfyui_agent.db"
        self.clock = SqliteClock()
        self._opened: list[Store] = []

    def open(self) -> Store:
        store = Store(SqliteDriver.open(self.path, vfs=self.clock.name))
        self._opened.append(store)
        return store

    def by_hand(self, sql: str) -> Rows:
        return in_the_shell(self.path, sql)

    def commits(self, store: Store) -> int:
        assert isinstance(store.driver, SqliteDriver)
        return store.driver.commits

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self.clock.unregister()


KINDS = {"sqlite": SqliteDatabase}


def in_the_shell(path: Path, sql: str) -> Rows:
    """The rows of all statements. The real shell, in a process of its own: never two SQLites on a file in this one."""
    shell = shutil.which("sqlite3")
    command = [shell, "-json", "-bail", str(path)] if shell else [sys.executable, "-c", CHILD_SHELL, str(path)]
    typed = (".timeout 5000\n" if shell else "") + sql.rstrip().rstrip(";") + ";\n"
    answer = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=30, check=False)
    assert (answer.returncode, answer.stderr) == (0, ""), f"{answer.stderr} after {sql}"
    return _rows_in(answer.stdout)


def _rows_in(printed: str) -> Rows:
    decoder, rows = json.JSONDecoder(), []
    while printed := printed.lstrip():
        found, end = decoder.raw_decode(printed)
        rows += found
        printed = printed[end:]
    return rows


def everything(database: Database) -> dict[str, Rows]:
    """All that the database holds, to see that nothing was changed."""
    return {table: database.by_hand(f"SELECT * FROM {table}") for table in TABLES}


def real_counts(database: Database) -> dict[str, int]:
    """The counts by counting."""
    none = dict.fromkeys(("pending", "processing", "done", "failed"), 0)
    rows = database.by_hand("SELECT status, count(*) AS jobs FROM jobs GROUP BY status")
    [needy] = database.by_hand(
        "SELECT count(*) AS jobs FROM jobs "
        "WHERE status = 'failed' AND failure_class IS NOT 'cancelled' AND dismissed_at IS NULL"
    )
    return none | {row["status"]: row["jobs"] for row in rows} | {"attention": needy["jobs"]}


def wish(name: str, **facts: Any) -> NewJob:
    return NewJob(**{"config_name": name, "job_type": "T2I", "workflow_id": "wf_realistic_portrait", **facts})


def broken(kind: FailureClass = FailureClass.EXECUTION, message: str = "boom", **facts: Any) -> Failure:
    return Failure(kind, message, **facts)


async def submit_one(store: Store, name: str = "knight.yaml", **facts: Any) -> JobId:
    (job_id,) = await store.run(ops.submit_jobs, [wish(name, **facts)])
    assert job_id is not None
    return job_id


async def lease(
    store: Store, *, most: int = 1, worker: str = WORKER, server: str = SERVER, size: int = 16
) -> list[Leased]:
    """As an agent asks: with fresh prompt ids, as many as it would take."""
    return await store.run(
        ops.lease_jobs, worker, Window(server, size), [mint_prompt_id() for _ in range(most)], LEASE_SECONDS
    )


async def lease_one(store: Store, *, worker: str = WORKER, server: str = SERVER, size: int = 16) -> Leased:
    (leased,) = await lease(store, worker=worker, server=server, size=size)
    return leased


async def submit_and_lease(store: Store, name: str = "knight.yaml", **facts: Any) -> Leased:
    await submit_one(store, name, **facts)
    leased = await lease_one(store)
    assert leased.config_name == name
    return leased


async def open_attempt(store: Store) -> OpenAttempt:
    (attempt,) = await store.run(ops.open_attempts)
    return attempt


async def take_over(store: Store, worker: str = "second-agent", prompt_id: str | None = None) -> Leased:
    """What the next agent does with an open attempt; with the only one, unless a prompt is named."""
    (attempt,) = [each for each in await store.run(ops.open_attempts) if prompt_id in (None, each.prompt_id)]
    leased = await store.run(ops.adopt_attempt, attempt, worker, LEASE_SECONDS)
    assert leased is not None
    return leased


async def register(store: Store, *workers: str, host: str = HOST) -> None:
    """Make workers count as alive. Their lock files are not there, so `bury_dead` of their host removes them."""
    for worker in workers:
        await store.run(ops.register_agent, worker, host, f"/nowhere/{worker}.lock")


class ScriptedStore:
    """A stand-in for `Store`: an operation is answered by the method of its name."""

    async def run(self, operation: Operation[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await getattr(self, operation.work.__name__)(*args, **kwargs)


def intercept(
    patch: pytest.MonkeyPatch, store: Store, operation: Operation[..., Any], instead: Callable[..., Awaitable[Any]]
) -> None:
    """Answer one operation of a store with `instead(really, *args)`, where `really` runs the operation."""
    run = store.run

    async def patched(asked: Operation[..., Any], *args: Any, **kwargs: Any) -> Any:
        if asked is operation:
            return await instead(partial(run, asked), *args, **kwargs)
        return await run(asked, *args, **kwargs)

    patch.setattr(store, "run", patched)
