"""Chaos in front of a server that others use leaves no prompt of its own there, and takes none of theirs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.domain.prompts import mint_prompt_id
from support.agents import ServerQueue, server_queue, sized_picture, wait_until
from support.graphs import node
from support.servers import ServerProcess, simulator

LONG = 300.0


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[ServerProcess]:
    process = simulator(tmp_path / "sim").start()
    yield process
    process.kill()


@pytest.fixture
def chaos(tmp_path: Path, shared: ServerProcess) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Chaos in front of the shared server, as a process that can be sent signals."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "page.json").write_text(json.dumps(sized_picture(64)))

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "comfyui_agent", "chaos", *arguments]
        command += ["--server", shared.url, "--workflow", "page.json", "--output", "chaos.json"]
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def post(url: str, graph: dict[str, Any]) -> str:
    """A prompt of another user."""
    prompt_id = mint_prompt_id()
    body = json.dumps({"prompt": graph, "prompt_id": prompt_id, "client_id": "another"}).encode()
    urllib.request.urlopen(
        urllib.request.Request(f"{url}/prompt", body, {"Content-Type": "application/json"}), timeout=5
    ).close()
    return prompt_id


def of_another_user(url: str) -> ServerQueue:
    """One prompt that keeps the server busy for longer than any test, and one that waits behind it."""
    graph = sized_picture()
    graph["3"] = node("Sleep", value=["1", 0], seconds=LONG)
    graph["2"]["inputs"]["images"] = ["3", 0]
    running = post(url, graph)
    wait_until(lambda: server_queue(url).running == (running,), "the prompt of another user to run")
    return ServerQueue((running,), (post(url, sized_picture(48)),))


def until_chaos_waits(url: str, theirs: ServerQueue) -> None:
    wait_until(lambda: len(server_queue(url).all) > len(theirs.all), "a prompt of chaos at the server", 30)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_stopped_in_the_middle_it_takes_its_prompts_back_and_nobody_elses(
    number: int, code: int, shared: ServerProcess, chaos: Callable[..., subprocess.Popen[str]]
) -> None:
    theirs = of_another_user(shared.url)
    process = chaos("prompt-validation", "--quick")
    until_chaos_waits(shared.url, theirs)
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    assert server_queue(shared.url) == theirs
    assert process.returncode == code
    assert "Stopped before anything was judged" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_scenario_that_is_given_up_takes_its_prompts_back_and_nobody_elses(
    shared: ServerProcess, chaos: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    theirs = of_another_user(shared.url)
    process = chaos("prompt-validation", "--quick", "--patience", "4")
    until_chaos_waits(shared.url, theirs)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert server_queue(shared.url) == theirs
    assert json.loads((tmp_path / "chaos.json").read_text())["results"][0]["verdict"] == "failed"


@pytest.mark.slow
def test_what_runs_there_for_chaos_is_stopped_too(
    shared: ServerProcess, chaos: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    graph = sized_picture(64)
    graph["3"] = node("Sleep", value=["1", 0], seconds=LONG)
    graph["2"]["inputs"]["images"] = ["3", 0]
    (tmp_path / "page.json").write_text(json.dumps(graph))
    process = chaos("prompt-validation", "--quick")
    wait_until(lambda: bool(server_queue(shared.url).running), "a prompt of chaos that runs", 30)
    theirs = post(shared.url, sized_picture(48))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    wait_until(lambda: not server_queue(shared.url).all, "the prompt of another user to be rendered", 5)
    with urllib.request.urlopen(f"{shared.url}/history/{theirs}", timeout=5) as answer:
        assert json.load(answer)[theirs]["status"]["status_str"] == "success"
