"""A PostgreSQL for measurements: its commits wait for the disk. Else the one that E3_TEST_POSTGRES names."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from support.postgres import NAMED, PostgresServer, execute

OPTIONS = ("max_connections=300", "shared_buffers=512MB", "max_wal_size=4GB", "autovacuum_naptime=10s")


@dataclass(frozen=True)
class Postgres:
    """A server, and the folder of its data if it was started here."""

    url: str
    data: Path | None = None

    def database(self) -> str:
        """The URL of an empty database."""
        name = f"e3_{uuid.uuid4().hex[:16]}"
        execute(self.url, f"CREATE DATABASE {name}")
        return f"{self.url.rpartition('/')[0]}/{name}"

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """An empty database, which is dropped afterwards."""
        url = self.database()
        try:
            yield url
        finally:
            execute(self.url, f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


@contextmanager
def postgres() -> Iterator[Postgres]:
    if NAMED:
        yield _durable(Postgres(NAMED))
        return
    with tempfile.TemporaryDirectory(prefix="e3-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # as root, the server runs as nobody
        server = PostgresServer(Path(folder) / "postgres", options=OPTIONS).start()
        try:
            yield _durable(Postgres(server.url, server.data))
        finally:
            server.stop()


def _durable(server: Postgres) -> Postgres:
    with psycopg.connect(server.url) as connection:
        for setting in ("fsync", "synchronous_commit"):
            row = connection.execute(f"SHOW {setting}".encode()).fetchone()
            assert row is not None
            assert row[0] == "on", f"{setting} is {row[0]}: the figures would mean nothing"
    return server
