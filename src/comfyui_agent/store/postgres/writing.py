"""The connection of the writer thread to PostgreSQL. It is made anew when it breaks; callers do not see that."""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from comfyui_agent.store.errors import DatabaseAway, DatabaseUnusable
from comfyui_agent.store.postgres.connection import MENDED_BY_RECONNECTING, MENDED_BY_REPEATING, Place
from comfyui_agent.store.postgres.session import BEGIN, COMMIT, PostgresSession
from comfyui_agent.store.writer import WriterConnection

log = logging.getLogger(__name__)

CHANNEL = "e3_changes"
TELL_SECONDS = 0.05
"""Other processes are told at most this often: a notification locks the whole database at its commit."""
TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"
"""Nothing is lost with a notification, so its commit does not wait for the disk."""
POLL_SECONDS = 1.0
POLL = """
    SELECT last_value + is_called::int, (SELECT last_value + is_called::int FROM e3_changes),
        pg_snapshot_xmin(now_open)::text::bigint, pg_snapshot_xmax(now_open)::text::bigint
    FROM e3_event_numbers, pg_current_snapshot() AS now_open
"""
PLANS = b"SET plan_cache_mode = force_generic_plan; SET enable_sort = off"
"""What is written is found by indexes. A plan is made once, and those of empty tables must be good for full ones."""
FIRST_PAUSE, LONGEST_PAUSE, SAY_AWAY_AFTER = 0.1, 3.0, 5.0
MOST_REPEATS = 20
LOST_COMMITS = (
    "the database {name} has lost what it had confirmed: it is a copy that was behind when it took over. Bring back "
    "the one that has everything, or start E3 anew if there is none: what was lost is then rendered again"
)
RETIRE = b"""
    WITH retired AS (
        INSERT INTO writers (token, commits) VALUES (%s, -1)
        ON CONFLICT (token) DO UPDATE SET commits = least(writers.commits, -1 - writers.commits)
        RETURNING -1 - commits AS commits, at),
    followed AS (
        INSERT INTO writers (token, commits) SELECT %s, commits FROM retired
        ON CONFLICT (token) DO UPDATE SET at = excluded.at RETURNING commits)
    SELECT followed.commits, set_config('e3.lost_commit_at', retired.at::text, false)
    FROM retired CROSS JOIN followed"""
"""A cut connection may have the statements of a transaction on their way still: what has not been committed under the
old token by now never will be. A retired token has -1 - commits. Waits for a transaction that is being committed. When
the last one began, queries can ask."""
LAST_COMMIT = b"SELECT greatest(commits, -1 - commits) FROM writers WHERE token = %s"


class PostgresWriting(WriterConnection):
    def __init__(self, place: Place, database: psycopg.Connection[Any], is_patient: Callable[[], bool]) -> None:
        self._place = place
        self._is_patient = is_patient
        self._dice = random.Random()
        self._name = self._token = secrets.token_hex(6)
        """The process. Each connection whose last answer was lost is followed by one with another token."""
        self._commits = 0
        """Confirmed transactions that changed something."""
        self._has_changed = False
        """Whether one did since the last look: then it cannot be seen whether others have changed something, too."""
        self._lost_at = ""
        """When the last transaction began whose answer was lost, by the clock of the database."""
        self._tell_at: float | None = None
        self._told_at = 0.0
        self._polled_at = time.monotonic()
        self._repeats = 0
        self._use(database)
        self._seen: list[Any] = []
        self._open_until: int | None = None
        """What was changed by transactions up to this number may not have been committed at the last look."""
        self._poll()

    def begin(self, error: Exception | None = None) -> None:
        if self.database.closed or self.database.broken:
            self._reconnect()
        self.session.begin(BEGIN, together=error is None)  # one by one, it is seen which call fails

    def commit(self) -> bool:
        """Commit. If the connection breaks meanwhile, the database is asked whether it has committed."""
        has_written = self.session.has_written
        try:
            counted = (
                self.session.ask("count_commit", token=self._token, commits=self._commits + 1) if has_written else list
            )
            self.session.end(COMMIT)
            has_changed = bool(counted())
        except psycopg.OperationalError as error:
            if not has_written or not self._is_broken(error):
                raise
            self.database.close()
            if not self._has_arrived():
                raise
            has_changed = True
        self._commits += has_changed
        self._has_changed |= has_changed
        self._repeats = 0
        return has_changed

    def roll_back(self) -> None:
        self.session.leave()
        with contextlib.suppress(psycopg.Error):
            if not self.database.closed and self.database.info.transaction_status != TransactionStatus.IDLE:
                self.database.execute("ROLLBACK")

    def execute(self, statement: str) -> None:
        self.session.execute(statement.encode())

    def is_whole(self, error: Exception) -> bool:
        return self._is_broken(error) or isinstance(error, (DatabaseAway, DatabaseUnusable, *MENDED_BY_REPEATING))

    def is_blocked(self, error: Exception) -> bool:
        return isinstance(error, errors.LockNotAvailable)

    def can_retry(self, error: Exception) -> bool:
        if isinstance(error, MENDED_BY_REPEATING):
            self._repeats += 1
            time.sleep(self._dice.uniform(0, min(0.02 * self._repeats, 0.2)))
            return self._repeats <= MOST_REPEATS and self._is_patient()
        if self._is_broken(error):
            self.database.close()
            return self._is_patient()
        return False

    def translate(self, error: Exception) -> Exception:
        return self._place.translate(error) if isinstance(error, psycopg.Error) else error

    def wake_others(self) -> None:
        now = time.monotonic()
        self._tell_at = self._tell_at or max(now, self._told_at + TELL_SECONDS)
        with contextlib.suppress(psycopg.Error):  # they are told later, or look by themselves
            self._tell(now)

    def has_news(self) -> bool | None:
        try:
            self._tell(time.monotonic())
            told = [each for each in self.database.notifies(timeout=0) if each.payload != self._name]
            if told:
                return True
            if time.monotonic() - self._polled_at < POLL_SECONDS * self._dice.uniform(0.9, 1.1):
                return False
            has_own, self._has_changed = self._has_changed, False
            by_hand = self._seen[1]
            if not self._poll():
                return False
            return None if has_own and self._seen[1] == by_hand else True
        except psycopg.Error:
            with contextlib.suppress(DatabaseAway, DatabaseUnusable):
                self._connect_again()
                return True  # nobody knows what was missed
            time.sleep(FIRST_PAUSE)
            return False

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self._commits and not self.database.closed:
                self.database.execute("DELETE FROM writers WHERE token LIKE %s", [f"{self._name}%"])
        self.database.close()

    def _use(self, database: psycopg.Connection[Any]) -> None:
        database.execute(PLANS)
        database.execute(f"LISTEN {CHANNEL}".encode())
        database.execute("SELECT set_config('e3.lost_commit_at', %s, false)", [self._lost_at])
        self.database = database
        self.session = PostgresSession(database)

    def _tell(self, now: float) -> None:
        if self._tell_at is not None and now >= self._tell_at:
            self.database.execute(TELL, [CHANNEL, self._name])
            self._tell_at, self._told_at = None, now

    def _poll(self) -> bool:
        """Whether there are new events or changes of jobs, also by hand. Numbers are drawn before what they are for is
        committed, so there may be until all transactions have ended that were open then."""
        self._polled_at = time.monotonic()
        *numbers, oldest, newest = self.database.execute(POLL).fetchone() or (0, 0)
        was_open, has_changed = self._open_until is not None, numbers != self._seen
        if has_changed or (self._open_until is not None and self._open_until <= oldest):
            self._open_until = newest if has_changed else None
        self._seen = numbers
        return has_changed or was_open

    def _is_broken(self, error: Exception) -> bool:
        """Errors without a code are those of the client, which did not understand the server or did not hear it."""
        return isinstance(error, MENDED_BY_RECONNECTING) or (
            isinstance(error, psycopg.OperationalError)
            and not isinstance(error, (errors.QueryCanceled, errors.DiskFull, *MENDED_BY_REPEATING))
            and (self.database.closed or self.database.broken or _is_of_client(error))
        )

    def _reconnect(self) -> None:
        """Connect again, as long as the writer waits. DatabaseAway if it gives up."""
        began, pause, has_said = time.monotonic(), FIRST_PAUSE, False
        while True:
            try:
                self._connect_again()
                if has_said:
                    log.warning("the database %s answers again", self._place.name)
                return
            except DatabaseAway as error:
                if not self._is_patient():
                    raise
                if not has_said and time.monotonic() - began > SAY_AWAY_AFTER:
                    has_said = True
                    log.warning("%s; trying again", error)
            time.sleep(pause * self._dice.uniform(0.5, 1))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connect_again(self) -> None:
        """Use a new connection, if the database still has what it confirmed."""
        self.database.close()
        database = self._place.connect()
        try:
            if self._commits > 0:
                row = database.execute(LAST_COMMIT, [self._token]).fetchone()
                if row is None or row[0] < self._commits:
                    raise DatabaseUnusable(LOST_COMMITS.format(name=self._place.name))
            self._use(database)
        except psycopg.Error as error:
            database.close()
            raise self._place.translate(error) from None
        except BaseException:
            database.close()
            raise

    def _has_arrived(self) -> bool:
        """Whether the last commit arrived, whose answer was lost. Asks until there is an answer."""
        fresh = f"{self._name}-{secrets.token_hex(4)}"
        while True:
            if self.database.closed or self.database.broken:
                self._reconnect()
            try:
                row = self.database.execute(RETIRE, [self._token, fresh]).fetchone()
                assert row is not None
                self._token, self._lost_at = fresh, row[1]
                return bool(row[0] > self._commits)
            except psycopg.Error as error:
                if not self._is_patient():
                    raise self._place.translate(error) from None


def _is_of_client(error: psycopg.Error) -> bool:
    return error.sqlstate is None and not isinstance(error, psycopg.errors.PipelineAborted)
