"""Connecting to PostgreSQL, and its errors as errors of the store."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo, errors

from comfyui_agent.store.errors import DatabaseAway, DatabaseFull, DatabaseUnusable, StoreError

OLDEST_SERVER = 140_000
SETTINGS = """
    SET TIME ZONE 'UTC';
    SET statement_timeout = '60s';
    SET lock_timeout = '2s';
    SET e3.writer = 'yes';
    SET idle_in_transaction_session_timeout = '30s';
    SET max_parallel_workers_per_gather = 0;
    SET jit = off;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
"""
"""Nothing waits for ever, and a host that is cut off holds no lock for long. What is committed is on disk.

Every query goes through an index and reads few rows: a database that has not counted its rows yet must not choose
otherwise. `e3.writer` tells triggers that this is no change by hand.
"""
NETWORK: dict[str, str | int | None] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
    "application_name": "e3",
}
"""A connection that is cut is noticed within about ten seconds. Options in the URL win."""
SNAPSHOT = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
MENDED_BY_RECONNECTING = (
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
    errors.TooManyConnections,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
)
MENDED_BY_REPEATING = (errors.DeadlockDetected, errors.SerializationFailure, errors.FeatureNotSupported)
"""The last: somebody has added a column by hand since a statement was prepared."""
WRONG_ADDRESS = re.compile(
    r"password|authentication|no pg_hba|does not exist|not permitted|certificate|invalid \w+ value", re.IGNORECASE
)


@dataclass(frozen=True)
class Place:
    """Where a database is. Its name is for people: without user, password and options."""

    url: str

    @property
    def name(self) -> str:
        scheme, _, rest = self.url.partition("://")
        return f"{scheme}://{re.split('[?#]', rest)[0].rpartition('@')[2]}"

    def connect(self) -> psycopg.Connection[Any]:
        """A connection whose commits are durable. StoreError if there is none to be had."""
        try:
            given = {**NETWORK, **conninfo.conninfo_to_dict(self.url)}
            connection = psycopg.connect(conninfo.make_conninfo("", **given), autocommit=True)
            try:
                if connection.info.server_version < OLDEST_SERVER:
                    raise DatabaseUnusable(f"{self.name} is older than PostgreSQL 14: E3 needs 14 or newer")
                connection.prepare_threshold = None  # sessions prepare; psycopg would deallocate it all at a rollback
                connection.execute(SETTINGS)
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise self.translate(error) from None
        return connection

    def translate(self, error: psycopg.Error) -> StoreError:
        """The error of the store that an error of PostgreSQL stands for."""
        reason = _without_secrets(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)
        match error:
            case (
                errors.InsufficientPrivilege()
                | errors.InvalidAuthorizationSpecification()
                | errors.InvalidCatalogName()
            ):
                return DatabaseUnusable(f"the database {self.name} may not be used: {reason}")
            case errors.DiskFull() | errors.OutOfMemory():
                return DatabaseFull(f"no room for the database {self.name}: {reason}")
            case psycopg.OperationalError() if error.sqlstate is None and WRONG_ADDRESS.search(str(error)):
                return DatabaseUnusable(f"the database {self.name} cannot be opened: {reason}")
            case psycopg.OperationalError() | errors.ReadOnlySqlTransaction() | errors.FeatureNotSupported():
                return DatabaseAway(f"the database {self.name} does not answer: {reason}")
            case psycopg.ProgrammingError() if error.sqlstate is None:
                return DatabaseUnusable(f"{self.name} is no address of a PostgreSQL database: {reason}")
            case _:
                return DatabaseUnusable(f"the database {self.name} does not work: {reason}")


def identity_of(database: psycopg.Connection[Any]) -> str | None:
    """The name of a database: of what it remembers, and of where it was before. None: it is an unfinished copy."""
    row = database.execute(
        """SELECT concat_ws(' ', token.value, current_database(), moved.value) FROM about AS token
        LEFT JOIN about AS moved ON moved.key = 'moved_from' WHERE token.key = 'identity'"""
    ).fetchone()
    return hashlib.sha256(row[0].encode()).hexdigest()[:12] if row else None


def _without_secrets(text: str) -> str:
    """An error text of libpq may repeat a part of the URL."""
    return re.sub(r"//[^/\s@]*@|password=\S+", "//", text)
