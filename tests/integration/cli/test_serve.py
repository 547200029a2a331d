"""`e3 serve`: the page alone; and `e3 run`, which serves it beside the work, or works on without."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyui_agent.sim.process import free_port
from support.agents import AgentWorkspace, wait_until
from support.batches import refusal
from support.shared_servers import Servers
from support.workspaces import call_e3, drop, new_workspace, run_e3

WITH_PAGE = {"E3_UI__ENABLED": "true"}


@pytest.fixture
def workspace(tmp_path: Path) -> AgentWorkspace:
    return new_workspace(tmp_path / "house")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which something else listens."""
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


@contextlib.contextmanager
def started(workspace: AgentWorkspace, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "comfyui_agent", *arguments, "-C", str(workspace.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=20)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_port_that_is_taken_is_one_line_and_a_failure(workspace: AgentWorkspace, taken: int) -> None:
    answer = run_e3("serve", "--port", str(taken), "-C", str(workspace.root))
    assert refusal(answer, 1) == f"port {taken} of 127.0.0.1 is taken: set ui.port to another"


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.com"])
def test_an_address_that_others_can_reach_is_refused_in_one_line_without_tokens(
    workspace: AgentWorkspace, host: str
) -> None:
    answer = call_e3("serve", "--host", host, "-C", str(workspace.root))
    words = refusal(answer, 2)
    assert host in words
    assert "e3 token create" in words


def test_an_address_of_another_machine_is_one_line_and_a_failure(workspace: AgentWorkspace) -> None:
    call_e3("token", "create", "--role", "admin", "-C", str(workspace.root))
    words = refusal(call_e3("serve", "--host", "192.0.2.1", "--port", "8190", "-C", str(workspace.root)), 1)
    assert "192.0.2.1:8190" in words


@pytest.mark.parametrize("arguments", [["--port", "0"], ["--port", "65536"], ["--port", "http"], ["--nonsense"]])
def test_usage_that_is_wrong_is_said_so(workspace: AgentWorkspace, arguments: list[str]) -> None:
    answer = call_e3("serve", *arguments, "-C", str(workspace.root))
    assert (answer.returncode, answer.stdout) == (2, "")


@pytest.mark.timing
def test_it_serves_until_a_signal_and_ends_within_two_seconds_with_streams_open(workspace: AgentWorkspace) -> None:
    port = free_port()
    with started(workspace, "serve", "--port", str(port)) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert f"http://127.0.0.1:{port}" in first
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz"), "the page to answer")
        streams = [http.client.HTTPConnection("127.0.0.1", port, timeout=10) for _ in range(3)]
        for stream, path in zip(streams, ("/api/v1/events", "/stream?page=/", "/stream?page=/queue"), strict=True):
            stream.request("GET", path)
            assert stream.getresponse().status == 200
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 2
        assert (process.returncode, out) == (143, "")
        assert "Traceback" not in err
        for stream in streams:
            stream.close()


def test_a_run_whose_port_is_taken_says_so_and_works_on(
    workspace: AgentWorkspace, taken: int, servers: Servers
) -> None:
    new = drop(workspace, "knight.yaml")
    answer = run_e3(
        *("run", "--until-idle", "--server", servers.url("sim"), "-C", str(workspace.root)),
        **WITH_PAGE,
        E3_UI__PORT=str(taken),
    )
    assert answer.returncode == 0, answer.stderr
    assert f"port {taken} of 127.0.0.1 is taken" in answer.stderr
    assert "works on" in answer.stderr or "goes on" in answer.stderr
    assert not new.exists()
    assert workspace.job("knight.yaml").status.value == "done"


def test_a_run_at_an_address_that_others_can_reach_is_refused_without_tokens(workspace: AgentWorkspace) -> None:
    answer = run_e3("run", "--until-idle", "-C", str(workspace.root), **WITH_PAGE, E3_UI__HOST="0.0.0.0")
    assert answer.returncode == 2
    assert "e3 token create" in answer.stderr
