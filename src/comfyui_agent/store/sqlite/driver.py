"""The SQLite driver of the store."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from comfyui_agent.domain.texts import megabytes
from comfyui_agent.pools import Pool
from comfyui_agent.store.errors import DatabaseFull, DatabaseUnusable, StoreClosed, UnfinishedCopy
from comfyui_agent.store.port import Result, Session
from comfyui_agent.store.records import Compacted
from comfyui_agent.store.sqlite import migrator
from comfyui_agent.store.sqlite.connection import connect, in_our_words, log_bytes
from comfyui_agent.store.sqlite.session import SqliteSession, add_brief_views
from comfyui_agent.store.sqlite.writing import LockPatience, SqliteWriting
from comfyui_agent.store.writer import Writer

T = TypeVar("T")

READ_PATIENCE, COMPACT_PATIENCE = 10.0, 5.0
COMPACT_STEPS = 100_000
HEADER, MAGIC = 100, b"SQLite format 3\0"
BUSY_MS = 2_000


class SqliteDriver:
    """One file, one writer thread, one reader thread. Open it with `SqliteDriver.open`."""

    def __init__(
        self, path: Path, writer: Writer, writing: SqliteWriting, reader: apsw.Connection, identity: str
    ) -> None:
        self.path = path
        self.identity = identity
        self._writer = writer
        self._writing = writing
        self._reader = reader
        self._reading = SqliteSession(reader)
        self._threads = Pool("e3-reader", 1)
        self._is_closed = False

    @classmethod
    def open(
        cls, path: Path, *, create: bool = True, vfs: str | None = None, give_up: Callable[[], bool] = lambda: False
    ) -> SqliteDriver:
        """Open a database and bring it to the newest version. With `create`, it must be writable."""
        find_or_make_room(path, create)
        with our_words(path):
            opened = partial(connect, path, vet=partial(migrator.refuse_strangers, path=path), vfs=vfs, create=create)
            writer = Writer(give_up)
            database = opened(wait=LockPatience(writer.is_patient))
            try:
                migrator.migrate(database)
                add_brief_views(database)
                if create:  # opening a read-only file raises nothing: do so now rather than at the first job
                    database.execute("BEGIN IMMEDIATE; ROLLBACK")
                reader = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, vfs=vfs, create=False)
                add_brief_views(reader)
                token = reader.execute("SELECT value FROM about WHERE key = 'identity'").get
                if token is None:
                    reader.close()
                    raise UnfinishedCopy(path)
                writing = SqliteWriting(database, partial(in_our_words, path=path))
            except BaseException:
                database.close()
                raise
        writer.start(writing)
        return cls(path, writer, writing, reader, identity_at(path, token))

    @property
    def commits(self) -> int:
        return self._writer.commits

    @property
    def version(self) -> int:
        return self._writer.changes

    @property
    def log_bytes(self) -> int:
        return log_bytes(self.path)

    async def write(self, work: Callable[[Session], Result[T]], *, can_wait: bool = False, wakes: bool = False) -> T:
        result: T = await self._writer.write(work, can_wait=can_wait, wakes=wakes)
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        if self._is_closed:
            raise StoreClosed("the store is closed")
        try:
            return await self._threads.run(self._read, work)
        except UnicodeDecodeError:
            await self.write(lambda _: self._writing.session.mend_texts())
            return await self._threads.run(self._read, work)

    def _read(self, work: Callable[[Session], T]) -> T:
        try:
            self._reader.execute("BEGIN")
            try:
                return work(self._reading)
            finally:
                self._reader.execute("COMMIT")
        except apsw.Error as error:
            raise in_our_words(error, self.path) from None

    def on_change(self, call: Callable[[], None]) -> None:
        self._writer.on_change(asyncio.get_running_loop(), call)

    async def close(self, *, timeout: float | None = None) -> None:
        """Finish waiting writes and close. After the timeout the rest is given up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._writer.ask_to_close()
        await asyncio.get_running_loop().run_in_executor(None, self._writer.wait_closed, timeout)
        closing = asyncio.ensure_future(self._threads.run(self._reader.close))
        done, _ = await asyncio.wait({closing}, timeout=timeout)  # a long read may go on
        for each in done:
            each.result()


def identity_at(path: Path, token: str | None) -> str:
    """The name of a database: of what it remembers, and of its place."""
    return hashlib.sha256(f"{token} {path.resolve()}".encode()).hexdigest()[:12]


def migrate_file(path: Path) -> tuple[int, int]:
    """Make a database or bring it up to date. Returns its version before and after."""
    find_or_make_room(path, create=True)
    with our_words(path):
        vet = partial(migrator.refuse_strangers, path=path)
        database = connect(path, wait=lambda seconds: seconds < READ_PATIENCE, vet=vet)
        try:
            return migrator.migrate(database)
        finally:
            database.close()


def compact_file(path: Path) -> Compacted:
    """Compact a database that nobody uses. Interrupted, it stays as it was. DatabaseFull if there is no room."""
    find_or_make_room(path, create=False)
    before = path.stat().st_size + log_bytes(path)
    with our_words(path):
        database = connect(path, wait=lambda seconds: seconds < COMPACT_PATIENCE, create=False)
        try:
            database.set_progress_handler(lambda: False, COMPACT_STEPS)  # Ctrl-C is heard here
            session = SqliteSession(database)
            size = session.one("size_of_database")
            assert size is not None
            needed = 2 * (size["bytes"] - size["free"])
            if shutil.disk_usage(path.parent).free < needed:
                raise DatabaseFull(f"this needs {megabytes(needed)} free on the disk of {path}: make room first")
            templates = session.run("remove_unused_templates")
            database.execute("PRAGMA temp_store = file; VACUUM; PRAGMA wal_checkpoint(truncate)")
        finally:
            database.close()
    return Compacted(before, path.stat().st_size + log_bytes(path), templates)


def version_of_file(path: Path) -> int:
    """The version of a database. If its log is empty, it is read from the file: opening may change the file."""
    try:
        if not log_bytes(path):  # otherwise the newest version may be written there only
            with path.open("rb") as file:
                head = file.read(HEADER)
            # If it is something else, opening it raises the right error.
            return int.from_bytes(head[60:64], "big") if head.startswith(MAGIC) else migrator.NEWEST
    except OSError as error:
        raise DatabaseUnusable(f"the database {path} cannot be read: {error.strerror}") from None
    with our_words(path):
        database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            database.set_busy_timeout(BUSY_MS)
            return migrator.version_of(database)
        finally:
            database.close()


@contextlib.contextmanager
def our_words(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of the file system as errors of the store."""
    try:
        yield
    except apsw.Error as error:
        raise in_our_words(error, path) from None
    except OSError as error:
        raise DatabaseUnusable(f"the database {path} cannot be opened: {error.strerror}") from None


def find_or_make_room(path: Path, create: bool) -> None:
    try:
        if create:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # it is there, and closing it would drop our locks; or SQLite tells why
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # SQLite gives the files beside it this mode
        elif not path.exists():
            raise DatabaseUnusable(f"there is no database {path}: `e3 execute` makes one")
    except OSError as error:
        raise DatabaseUnusable(f"the folder {path.parent} cannot be made: {error.strerror}") from None
