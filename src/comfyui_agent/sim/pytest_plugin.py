"""A simulator for tests: `pytest_plugins = ["comfyui_agent.sim.pytest_plugin"]` in a conftest.

def test_my_workflow(comfyui_simulator):
    server = comfyui_simulator("--failure-rate", "0.1", "--seed", "7")
    ...  # talk to server.url, look into server.output_dir, or server.kill() it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from comfyui_agent.sim.process import ServerProcess, simulator


@pytest.fixture
def comfyui_simulator(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Starts simulators with the flags of `e3 sim`; they end with the test."""
    started: list[ServerProcess] = []

    def start(*flags: str) -> ServerProcess:
        started.append(simulator(tmp_path / f"simulator-{len(started)}", *flags))
        return started[-1].start()

    yield start
    for server in started:
        server.kill()
