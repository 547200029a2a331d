"""`e3 tune`: with real processes of a simulator, what it refuses, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from comfyui_agent.cli.app import app
from comfyui_agent.config.loader import load_workspace
from comfyui_agent.engine import agent
from comfyui_agent.fleet.launch import tuning
from comfyui_agent.fleet.launch.state import SlotFolder, SlotState
from comfyui_agent.lab.tuning import sandbox_in
from comfyui_agent.store.agent_lock import AgentLock
from support import fake_comfyui
from support.agents import sized_picture, wait_until
from support.changed_agent import QUICK_TUNING
from support.launching import end_all, launch_section, related, slots_in

DIRECTORY = Path(fake_comfyui.__path__[0])


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace with a simulated card, and a tuner that is quick to decide."""
    for name, value in QUICK_TUNING.items():
        monkeypatch.setattr(tuning, name, value)
    monkeypatch.setattr(agent, "TUNING_SECONDS", 0.3)
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "picture.json").write_text(json.dumps(sized_picture()))
    launch_on(monkeypatch)
    yield root
    end_all(root / "comfyui" / "tune")


def launch_on(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    flags = ["--card", uuid4().hex, "--render-seconds", "0.4", "--vram-gb", "80"]
    section = {"gpus": [0], "environment": {"E3_SIM_FLAGS": json.dumps(flags)}} | settings
    section = launch_section(section.pop("directory", DIRECTORY), **section)
    monkeypatch.setenv("E3_COMFYUI__LAUNCH", json.dumps([section]))


def tune(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["tune", str(root / "picture.json"), "-C", str(root), *arguments])


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_number_is_found_and_nothing_is_left(workspace: Path) -> None:
    answer = tune(workspace, "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    (card,) = found["cards"]
    assert (found["settled"], card["card"], card["measured"][0]["gain"]) == (True, "gpu0", None)
    assert [row["processes"] for row in card["measured"]] == list(range(1, card["per_gpu"] + 2))
    assert "not worth it" in card["decision"]
    assert answer.stderr.splitlines()[-1] == f"gpu0: {card['decision']}"
    assert slots_in(workspace / "comfyui" / "tune") == []
    assert list(workspace.glob("jobs/**/*.png")) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_it_says_what_it_has_found_when_the_time_is_up(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "GAIN", 0.1)
    answer = tune(workspace, "--max-minutes", "0.3")
    assert answer.exit_code == 1
    assert "not settled within" in answer.stderr
    assert "processes  images/min    gain  memory each" in answer.stdout
    assert "per_gpu: " in answer.stdout


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_a_killed_one_left_is_ended_by_the_next(workspace: Path) -> None:
    command = [sys.executable, "-m", "comfyui_agent", "tune", str(workspace / "picture.json"), "-C", str(workspace)]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    slot = SlotFolder(workspace / "comfyui" / "tune" / "comfyui" / "gpu0-1")
    wait_until(lambda: related(slot), "its first process")
    killed.kill()
    killed.wait()
    assert related(slot)
    tune(workspace, "--max-minutes", "0.1")
    assert related(slot) == []


@pytest.mark.slow
def test_a_comfyui_that_does_not_start_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch_on(monkeypatch, directory=workspace / "nowhere")
    answer = tune(workspace)
    assert answer.exit_code == 1
    assert "gpu0: ComfyUI was given up: there is no main.py" in answer.stderr


def test_processes_that_are_in_use_are_left_alone(workspace: Path) -> None:
    folder = SlotFolder(workspace / "comfyui" / "gpu0-1")
    folder.prepare()
    folder.write(SlotState(url="http://127.0.0.1:1", card="gpu0"))
    lock = AgentLock(load_workspace(workspace, os.environ).locks)
    try:
        answer = tune(workspace)
    finally:
        lock.release()
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == "e3: gpu0-1 is in use: e3 comfyui down first, and e3 comfyui up afterwards\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--card", "gpu7"], 1, "no card gpu7: name one of gpu0"),
        (["--set", "nonsense=1"], 2, "'nonsense' has no place in the workflow"),
        (["--set", "width"], 2, "write NAME=VALUE"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(workspace: Path, arguments: list[str], code: int, told: str) -> None:
    answer = tune(workspace, *arguments)
    assert (answer.exit_code, answer.stderr.count("\n")) == (code, 1)
    assert told in answer.stderr


def test_without_launch_there_is_nothing_to_tune(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("E3_COMFYUI__LAUNCH")
    answer = tune(workspace)
    assert (answer.exit_code, "comfyui.launch names no ComfyUI" in answer.stderr) == (1, True)


def test_the_same_processes_on_one_card(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch_on(monkeypatch, directory=Path("ComfyUI"), python="venv/bin/python", gpus=[0, 1], per_gpu=3)
    sandbox = sandbox_in(load_workspace(workspace, os.environ), "gpu1")
    (launch,) = sandbox.settings.comfyui.launch
    assert (launch.gpus, launch.per_gpu, launch.stop_with_agent) == ((1,), "auto", True)
    assert (launch.directory, launch.python) == (str(workspace / "ComfyUI"), str(workspace / "venv/bin/python"))
    assert sandbox.root == workspace / "comfyui" / "tune"
