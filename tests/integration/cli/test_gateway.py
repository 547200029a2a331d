"""`e3 gateway`: ComfyUI's protocol alone; and `e3 run`, which speaks it beside the work where it is asked to."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from comfyui_agent.sim.process import free_port
from support.agents import AgentWorkspace
from support.batches import refusal
from support.shared_servers import Servers
from support.workspaces import call_e3, drop, new_workspace, run_e3, start_e3, wait_for_words


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


def remaining(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/prompt", timeout=5) as answer:
        found: int = json.load(answer)["exec_info"]["queue_remaining"]
        return found


def test_a_port_that_is_taken_is_one_line_and_a_failure(workspace: AgentWorkspace, taken: int) -> None:
    answer = run_e3("gateway", "--port", str(taken), "-C", str(workspace.root))
    assert refusal(answer, 1) == f"port {taken} of 127.0.0.1 is taken: set gateway.port to another"


def test_an_address_that_others_can_reach_is_refused_without_tokens(workspace: AgentWorkspace) -> None:
    words = refusal(call_e3("gateway", "--host", "0.0.0.0", "-C", str(workspace.root)), 2)
    assert words.startswith("gateway.host 0.0.0.0 can be reached from other machines")


@pytest.mark.parametrize("command", [["gateway"], ["run", "--until-idle"]])
def test_an_editor_that_is_no_server_is_one_line(workspace: AgentWorkspace, command: list[str]) -> None:
    where = {"E3_GATEWAY__PORT": str(free_port()), "E3_GATEWAY__EDITOR": "gpu9"}
    answer = run_e3(*command, "-C", str(workspace.root), **where)
    assert answer.returncode == 2
    assert "gateway.editor: there is no server 'gpu9': known are 127.0.0.1:9" in answer.stderr


def test_it_serves_until_a_signal(workspace: AgentWorkspace) -> None:
    port = free_port()
    process = start_e3(workspace, "gateway", "--port", str(port))
    told = wait_for_words(workspace, ["no agent runs here"])
    assert f"http://127.0.0.1:{port}" in told
    assert remaining(port) == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert "Traceback" not in workspace.log.read_text(encoding="utf-8")


def test_a_run_is_also_a_gateway_where_it_has_a_port(workspace: AgentWorkspace) -> None:
    port = free_port()
    process = start_e3(workspace, "run", E3_GATEWAY__PORT=str(port))
    wait_for_words(workspace, f"The gateway is at http://127.0.0.1:{port}")
    assert remaining(port) == 0
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


def test_a_run_whose_port_is_taken_says_so_and_works_on(
    workspace: AgentWorkspace, taken: int, servers: Servers
) -> None:
    drop(workspace, "knight.yaml")
    server = servers.url("sim")
    answer = run_e3("run", "--until-idle", "--server", server, "-C", str(workspace.root), E3_GATEWAY__PORT=str(taken))
    assert answer.returncode == 0, answer.stderr
    assert f"port {taken} of 127.0.0.1 is taken" in answer.stderr
    assert "The work goes on without the gateway." in answer.stderr
    assert workspace.job("knight.yaml").status.value == "done"
