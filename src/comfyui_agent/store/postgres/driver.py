"""The PostgreSQL driver of the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from comfyui_agent.pools import Pool
from comfyui_agent.store.errors import DatabaseAway, StoreClosed, UnfinishedCopy
from comfyui_agent.store.port import Result, Session
from comfyui_agent.store.postgres import migrator
from comfyui_agent.store.postgres.connection import SNAPSHOT, Place, identity_of
from comfyui_agent.store.postgres.session import COMMIT, PostgresSession
from comfyui_agent.store.postgres.writing import PostgresWriting
from comfyui_agent.store.records import Compacted
from comfyui_agent.store.retention import remove_unused_templates
from comfyui_agent.store.writer import Writer

log = logging.getLogger(__name__)

T = TypeVar("T")

OPEN_PATIENCE, READ_PATIENCE = 10.0, 10.0
PAUSE = 0.2


class PostgresDriver:
    """One database; a writer thread and a reader thread, each with a connection. Open it with `PostgresDriver.open`."""

    def __init__(self, place: Place, writer: Writer, identity: str) -> None:
        self.place = place
        self.identity = identity
        self._writer = writer
        self._reader: psycopg.Connection[Any] | None = None
        self._threads = Pool("e3-reader", 1)
        self._is_closed = False

    @classmethod
    def open(cls, url: str, *, is_patient: bool = False, give_up: Callable[[], bool] = lambda: False) -> PostgresDriver:
        """Open a database and bring it to the newest version. One that does not answer is waited for, for a while."""
        patience = math.inf if is_patient else OPEN_PATIENCE
        place, writer = Place(url), Writer(give_up)
        began, has_said = time.monotonic(), False
        while True:
            try:
                return cls._opened(place, writer)
            except DatabaseAway as error:
                if give_up() or time.monotonic() - began > patience:
                    raise
                if not has_said:
                    has_said = True
                    log.warning("%s; trying again%s", error, "" if is_patient else f" for {patience:.0f} s")
                time.sleep(PAUSE)

    @classmethod
    def _opened(cls, place: Place, writer: Writer) -> PostgresDriver:
        database = place.connect()
        try:
            migrator.migrate(database, place.name)
            identity = identity_of(database)
            if identity is None:
                raise UnfinishedCopy(place.name)
            writer.start(PostgresWriting(place, database, writer.is_patient))
        except psycopg.Error as error:
            database.close()
            raise place.translate(error) from None
        except BaseException:
            database.close()
            raise
        return cls(place, writer, identity)

    @property
    def commits(self) -> int:
        return self._writer.commits

    @property
    def version(self) -> int:
        return self._writer.changes

    @property
    def log_bytes(self) -> int:
        return 0

    async def write(self, work: Callable[[Session], Result[T]], *, can_wait: bool = False, wakes: bool = False) -> T:
        result: T = await self._writer.write(work, can_wait=can_wait, wakes=wakes)
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        if self._is_closed:
            raise StoreClosed("the store is closed")
        return await self._threads.run(self._read, work)

    def _read(self, work: Callable[[Session], T]) -> T:
        """Run work in one snapshot. A connection that breaks is made anew, and the work run again."""
        began = time.monotonic()
        while True:
            try:
                try:
                    return self._read_once(work)
                except psycopg.Error as error:
                    raise self.place.translate(error) from None
            except DatabaseAway:
                self._close_reader()
                if self._is_closed or time.monotonic() - began > READ_PATIENCE:
                    raise
                time.sleep(PAUSE)

    def _read_once(self, work: Callable[[Session], T]) -> T:
        if self._reader is None or self._reader.closed or self._reader.broken:
            self._reader = self.place.connect()
            self._reading = PostgresSession(self._reader)
        try:
            self._reading.begin(SNAPSHOT)
            result = work(self._reading)
            self._reading.end(COMMIT)
        except BaseException:
            self._reading.leave()
            with contextlib.suppress(psycopg.Error):
                self._reader.execute(b"ROLLBACK")
            raise
        return result

    def on_change(self, call: Callable[[], None]) -> None:
        self._writer.on_change(asyncio.get_running_loop(), call)

    async def close(self, *, timeout: float | None = None) -> None:
        """Finish waiting writes and close. After the timeout the rest is given up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.ask_to_close()
        await asyncio.get_running_loop().run_in_executor(None, self._writer.wait_closed, timeout)
        closing = asyncio.ensure_future(self._threads.run(self._close_reader))
        await asyncio.wait({closing}, timeout=timeout)  # a long read may go on

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()


def migrate_database(url: str) -> tuple[int, int]:
    """Make the tables or bring them up to date. Returns the version before and after."""
    return _with_connection(url, lambda database, name: migrator.migrate(database, name))


def version_of_database(url: str) -> int:
    return _with_connection(url, lambda database, _: migrator.version_of(database))


def compact_database(url: str) -> Compacted:
    """Remove unused templates and give their space back. Agents may go on meanwhile."""

    def compact(database: psycopg.Connection[Any], _: str) -> Compacted:
        session = PostgresSession(database)
        before = session.value("size_of_database")
        with database.transaction():
            templates = remove_unused_templates(session)
        database.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        database.execute("VACUUM (FULL) templates")
        database.execute("VACUUM (ANALYZE)")
        return Compacted(before, session.value("size_of_database"), templates)

    return _with_connection(url, compact)


def _with_connection(url: str, work: Callable[[psycopg.Connection[Any], str], T]) -> T:
    place = Place(url)
    database = place.connect()
    try:
        return work(database, place.name)
    except psycopg.Error as error:
        raise place.translate(error) from None
    finally:
        database.close()
