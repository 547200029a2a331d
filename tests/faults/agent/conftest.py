"""Agents as real processes, in front of servers that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.agents import AgentWorkspace
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
def make_workspace(tmp_path: Path) -> Iterator[Callable[..., AgentWorkspace]]:
    made: list[AgentWorkspace] = []

    def make(*servers: str, **environment: str) -> AgentWorkspace:
        workspace = AgentWorkspace(tmp_path / f"workspace-{len(made)}", list(servers), environment)
        made.append(workspace)
        return workspace

    yield make
    for workspace in made:
        workspace.stop_all()
