"""An agent with its page, attacked: it goes on rendering, answers probes, keeps its memory, and leaves when told to."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from support.agents import AgentWorkspace, leave, wait_until
from support.attacks import Prober, blank_axes, connected, healthz, memory_mb, post, send_and_leave, slow_readers
from support.servers import ServerProcess, free_port
from support.workspaces import new_workspace

Start = Callable[..., ServerProcess]
MOST_GROWTH = 200.0
JOBS = 20
ELSEWHERE = "127.0.0.2"
"""Slow readers take all connections of one address."""


class Attacked:
    """`e3 run` on a workspace with a page."""

    def __init__(self, workspace: AgentWorkspace) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.workspace = workspace
        command = [sys.executable, "-m", "comfyui_agent", "run", "-C", str(workspace.root)]
        environment = {**os.environ, "E3_UI__ENABLED": "true", "E3_UI__PORT": str(port)}
        with workspace.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        wait_until(self._answers, "the page")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.workspace.tail()
        try:
            return healthz(self.url) > 0
        except (OSError, http.client.HTTPException):
            return False

    def plan_and_leave(self, times: int) -> None:
        """Requests that the page refuses, and the most that it allows, by clients who are gone at once."""
        largest = {"workflow": "picture", "set": {"color": "1..100000"}, "dry_run": True}
        book = {"workflow": "picture", "book_id": "zz", "pages": [1] * 1_300_000}
        send_and_leave(self.url, post("/api/v1/batches", blank_axes("picture", "color")), times)
        send_and_leave(self.url, post("/api/v1/batches", largest), times)
        send_and_leave(self.url, post("/api/v1/books", book), 1, ELSEWHERE)
        with connected(self.url, ELSEWHERE) as client:
            client.sendall(post("/api/v1/books", book))
            assert client.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.parametrize("readers", [200, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_plans_for_nobody_and_slow_readers_stop_neither_rendering_nor_probes_nor_the_end(
    start_server: Start, tmp_path_factory: pytest.TempPathFactory, readers: int
) -> None:
    server = start_server("--render-seconds", "0.02")
    workspace = new_workspace(tmp_path_factory.mktemp("attacked") / "workspace", server.url)
    attacked = Attacked(workspace)
    try:
        idle = memory_mb(attacked.process.pid)
        with slow_readers(attacked.url, readers):
            with Prober(attacked.url) as prober:
                attacked.plan_and_leave(6)
                workspace.submit(JOBS)
                workspace.wait_done(JOBS, timeout=60)
            assert not prober.failures
            assert max(prober.seconds) < 2.0
            attacked.plan_and_leave(6)
            assert memory_mb(attacked.process.pid) - idle < MOST_GROWTH
            seconds = leave(attacked.process, signal.SIGTERM)
        assert attacked.process.returncode == 143
        assert seconds < 2.0, f"it took {seconds:.2f} s"
    finally:
        attacked.process.kill()
        attacked.process.wait()
