"""Databases to test the store with: one class for each kind, so that every kind passes the same tests."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import apsw
import psycopg
import pytest

from comfyui_agent.domain.failures import Failure, FailureClass
from comfyui_agent.domain.jobs import JobId, NewJob
from comfyui_agent.domain.prompts import mint_prompt_id
from comfyui_agent.store import operations as ops
from comfyui_agent.store.connect import migrate_store
from comfyui_agent.store.operation import Operation
from comfyui_agent.store.port import Session
from comfyui_agent.store.postgres.driver import PostgresDriver
from comfyui_agent.store.postgres.session import PostgresSession
from comfyui_agent.store.records import Leased, OpenAttempt, Window
from comfyui_agent.store.rows import time_text
from comfyui_agent.store.sqlite.driver import SqliteDriver
from comfyui_agent.store.sqlite.session import SqliteSession
from comfyui_agent.store.store import Store
from support import postgres

Rows = list[dict[str, Any]]

SERVER = "http://gpu:8188"
WORKER = "first-agent"
HOST = "this-host"
LEASE_SECONDS = 30.0
TABLES = ("jobs", "attempts", "files", "events", "templates")
COUNTS = "SELECT status, CAST(sum(jobs) AS integer) AS jobs FROM job_counts GROUP BY status ORDER BY status"

STEPS = 10
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

    @property
    def place(self) -> str:
        """As `open_store` takes it."""

    def by_hand(self, sql: str) -> Rows:
        """What a user gets who types this beside the running agents. AssertionError if the database refuses it."""

    def refuse(self, table: str, event: str, when: str = "true") -> None:
        """Have the database refuse changes of a table, for rows where `when` is true of NEW. It says: on purpose."""

    def allow(self, table: str) -> None:
        """Take that back."""

    def empty(self) -> None:
        """Remove all jobs by hand. Their ids begin anew."""

    def work(self, session: Session) -> Callable[[], int]:
        """Counts from now on how much the database does for a session, in a unit that is the same on every computer."""

    def tidy(self) -> None:
        """Do now what the database does now and then."""

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

    @property
    def place(self) -> str:
        return str(self.path)

    def open(self) -> Store:
        store = Store(SqliteDriver.open(self.path, vfs=self.clock.name))
        self._opened.append(store)
        return store

    def by_hand(self, sql: str) -> Rows:
        return in_the_shell(self.path, sql)

    def refuse(self, table: str, event: str, when: str = "true") -> None:
        self.by_hand(
            f"CREATE TRIGGER refused_{table} BEFORE {event} ON {table} WHEN {when} "
            "BEGIN SELECT raise(ABORT, 'on purpose'); END"
        )

    def allow(self, table: str) -> None:
        self.by_hand(f"DROP TRIGGER refused_{table}")

    def empty(self) -> None:
        self.by_hand("DELETE FROM jobs; DELETE FROM sqlite_sequence")

    def tidy(self) -> None:
        """Nothing: it does all at once."""

    def work(self, session: Session) -> Callable[[], int]:
        """Counts steps of its machine."""
        assert isinstance(session, SqliteSession)
        steps = 0

        def count() -> bool:
            nonlocal steps
            steps += STEPS
            return False

        def counted() -> int:
            session.database.set_progress_handler(None)
            return steps

        session.database.set_progress_handler(count, STEPS)
        return counted

    def commits(self, store: Store) -> int:
        assert isinstance(store.driver, SqliteDriver)
        return store.driver.commits

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        self.clock.unregister()


CLOCK = """CREATE OR REPLACE FUNCTION e3_now() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT value::timestamptz FROM about WHERE key = 'test_clock' $$"""
"""What a test takes for the time of its database."""


class PostgresClock:
    """PostgreSQL asks a function for the time: in tests it stands in the database itself."""

    def __init__(self, shell: postgres.Shell) -> None:
        self._shell = shell
        self._now = datetime.now(timezone.utc)
        self._now = self._now.replace(microsecond=self._now.microsecond // 1000 * 1000)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._shell.execute(f"UPDATE about SET value = '{self._now.isoformat()}' WHERE key = 'test_clock'")

    def text(self) -> str:
        return time_text(self._now)


class PostgresDatabase:
    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - it lies elsewhere
        self.url = _FREE.pop() if _FREE else _new_database()
        self._shell = postgres.Shell(self.url)
        self.clock = PostgresClock(self._shell)
        self.clock.advance(0)
        self._is_clean = True
        self._opened: list[Store] = []

    @property
    def place(self) -> str:
        return self.url

    def open(self) -> Store:
        store = Store(PostgresDriver.open(self.url))
        self._opened.append(store)
        return store

    def by_hand(self, sql: str) -> Rows:
        try:
            rows = self._shell.execute(sql)
        except psycopg.Error as error:
            raise AssertionError(f"{error} after {sql}") from error
        return with_texts(rows)

    def refuse(self, table: str, event: str, when: str = "true") -> None:
        self._is_clean = False
        self.by_hand(
            f"CREATE FUNCTION refused_{table}() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE 'on purpose' USING ERRCODE = 'integrity_constraint_violation'; END $$;"
            f"CREATE TRIGGER refused_{table} BEFORE {event} ON {table} FOR EACH ROW WHEN ({when}) "
            f"EXECUTE FUNCTION refused_{table}()"
        )

    def allow(self, table: str) -> None:
        self.by_hand(f"DROP TRIGGER refused_{table} ON {table}")

    def empty(self) -> None:
        self.by_hand("DELETE FROM jobs; ALTER SEQUENCE jobs_id_seq RESTART")

    def tidy(self) -> None:
        self.by_hand("SELECT e3_fold(); ANALYZE")

    def work(self, session: Session) -> Callable[[], int]:
        """Counts rows that are read, times ten: about as many as SQLite needs steps."""
        assert isinstance(session, PostgresSession)

        def rows() -> int:
            session.execute(b"SELECT 1")  # what waits is sent
            found = session.database.execute(
                "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
            ).fetchone()
            return int(found[0]) if found else 0

        before = rows()
        return lambda: 10 * (rows() - before)

    def commits(self, store: Store) -> int:
        assert isinstance(store.driver, PostgresDriver)
        return store.driver.commits

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        with contextlib.suppress(psycopg.Error):  # a test may have changed its tables
            if self._is_clean and self._shell.execute(IS_SMALL)[0]["is_small"]:
                self._shell.execute(EMPTY)
                _FREE.append(self.url)
        self._shell.close()


_FREE: list[str] = []
"""Databases that are empty again: making one takes longer than most tests."""
IS_SMALL = "SELECT count(*) < 2000 AS is_small FROM jobs"
EMPTY = """
SET LOCAL session_replication_role = replica;
DO $$ DECLARE each regclass; BEGIN
    FOR each IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND relname NOT IN ('about', 'event_clock') LOOP
        EXECUTE 'DELETE FROM ' || each;
    END LOOP;
    FOR each IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' LOOP
        PERFORM setval(each, 1, false);
    END LOOP;
END $$;
DELETE FROM about WHERE key NOT IN ('identity', 'version', 'compatible', 'test_clock');
INSERT INTO job_counts VALUES ('pending', 0), ('processing', 0), ('done', 0), ('failed', 0), ('attention', 0);
"""
"""Without triggers, and without making files anew."""


def with_texts(rows: Rows) -> Rows:
    """Rows with times as SQLite writes them."""
    return [{key: time_text(each) if isinstance(each, datetime) else each for key, each in row.items()} for row in rows]


def _new_database() -> str:
    url = postgres.new_database()
    migrate_store(url)
    postgres.execute(url, f"INSERT INTO about VALUES ('test_clock', '2025-01-01'); {CLOCK}")
    return url


KINDS = {"sqlite": SqliteDatabase, "postgres": PostgresDatabase}


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
    tables = {table: database.by_hand(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES}
    return tables | {"job_counts": database.by_hand(COUNTS)}


def real_counts(database: Database) -> dict[str, int]:
    """The counts by counting."""
    none = dict.fromkeys(("pending", "processing", "done", "failed"), 0)
    rows = database.by_hand("SELECT status, count(*) AS jobs FROM jobs GROUP BY status")
    [needy] = database.by_hand(
        "SELECT count(*) AS jobs FROM jobs "
        "WHERE status = 'failed' AND failure_class IS DISTINCT FROM 'cancelled' AND dismissed_at IS NULL"
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


async def removed(store: Store, paths: list[str], *, can_be: bool = True) -> list[str]:
    """Those of these files that are nobody's. They can be removed, or not now."""
    asked: list[str] = []

    def remove(path: str) -> bool:
        asked.append(path)
        return can_be

    await store.run(ops.with_unowned, paths, remove)
    return asked


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
