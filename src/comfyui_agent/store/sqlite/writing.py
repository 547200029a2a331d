"""The connection of the writer thread to an SQLite file."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import apsw

from comfyui_agent.store.sqlite.session import SqliteSession
from comfyui_agent.store.writer import WriterConnection

log = logging.getLogger(__name__)

SAY_LOCKED_AFTER = 5.0
DISK_TROUBLE = (apsw.FullError, apsw.IOError, apsw.CorruptError)
"""After these the whole transaction is in doubt."""


class SqliteWriting(WriterConnection):
    def __init__(self, database: apsw.Connection, translate: Callable[[apsw.Error], Exception]) -> None:
        self.database = database
        self.session: SqliteSession = SqliteSession(database)
        self._translate = translate
        self._version: int = database.pragma("data_version")
        self._changes = 0

    def begin(self, error: Exception | None = None) -> None:
        self._changes = self.database.total_changes()
        self.database.execute("BEGIN IMMEDIATE")
        if isinstance(error, UnicodeDecodeError):
            self.session.mend_texts()

    def commit(self) -> bool:
        self.database.execute("COMMIT")
        return self.database.total_changes() != self._changes

    def roll_back(self) -> None:
        with contextlib.suppress(apsw.Error):
            if self.database.in_transaction:
                self.database.execute("ROLLBACK")

    def execute(self, statement: str) -> None:
        self.database.execute(statement)

    def is_whole(self, error: Exception) -> bool:
        return isinstance(error, DISK_TROUBLE)

    def is_blocked(self, error: Exception) -> bool:  # noqa: ARG002 - a locked file is waited for by its busy handler
        return False

    def can_retry(self, error: Exception) -> bool:  # noqa: ARG002
        return False

    def translate(self, error: Exception) -> Exception:
        return self._translate(error) if isinstance(error, apsw.Error) else error

    def wake_others(self) -> None:
        """Others see a commit by the version of the file."""

    def has_news(self) -> bool:
        try:
            version: int = self.database.pragma("data_version")
        except apsw.Error:
            return False
        is_news = version != self._version
        self._version = version
        return is_news

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            self.database.close()


class LockPatience:
    """Waits for other writers as long as the writer does, and says once that it waits."""

    def __init__(self, is_patient: Callable[[], bool]) -> None:
        self._is_patient = is_patient
        self._has_said = False

    def __call__(self, seconds: float) -> bool:
        if seconds < SAY_LOCKED_AFTER:
            self._has_said = False
        elif not self._has_said:
            self._has_said = True
            log.warning("the database has been locked by another program for %.0f s; waiting", seconds)
        return self._is_patient()
