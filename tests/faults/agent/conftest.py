"""Agents as real processes, in front of servers that can be killed."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.agents import DATABASE_URL, AgentWorkspace
from support.postgres import PostgresServer, new_database, skip_without_postgres
from support.servers import REAL_DIR, ServerProcess, real_comfyui, simulator

StartServer = Callable[..., ServerProcess]


@pytest.fixture
def start_server(server_kind: str, tmp_path: Path) -> Iterator[StartServer]:
    """Start servers of the kind under test; flags are the simulator's, and the real one has none of them."""
    if server_kind == "real" and not REAL_DIR:
        pytest.skip("a server known only by E3_COMFYUI_URL cannot be started from here")
    started: list[ServerProcess] = []

    def start(*flags: str) -> ServerProcess:
        folder = tmp_path / f"server-{len(started)}"
        folder.mkdir()
        process = real_comfyui(folder) if server_kind == "real" else simulator(folder, *flags)
        started.append(process)
        return process.start()

    yield start
    for process in started:
        process.kill()


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """The kind of memory that workspaces have: a file, unless the test is marked with `both_databases`."""
    kind: str = getattr(request, "param", "sqlite")
    return kind


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that can be stopped and killed."""
    skip_without_postgres()
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="e3-postgres-"))).start()
    yield server
    server.signal(signal.SIGCONT)
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def make_workspace(tmp_path: Path, database: str) -> Iterator[Callable[..., AgentWorkspace]]:
    made: list[AgentWorkspace] = []

    def make(*servers: str, **environment: str) -> AgentWorkspace:
        if database == "postgres" and DATABASE_URL not in environment:
            environment[DATABASE_URL] = new_database()
        workspace = AgentWorkspace(tmp_path / f"workspace-{len(made)}", list(servers), environment)
        made.append(workspace)
        return workspace

    yield make
    for workspace in made:
        workspace.stop_all()
