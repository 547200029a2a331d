"""An agent is alive as long as it holds its lock, and nobody has to wait to see that it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from comfyui_agent.store.agent_lock import AgentLock, is_dead

AGENT = """
import sys
from pathlib import Path
from comfyui_agent.store.agent_lock import AgentLock

lock = AgentLock(Path(sys.argv[1]))
print(lock.worker, flush=True)
if sys.stdin.readline() == "release":
    lock.release()
"""


class Agent:
    """An agent in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", AGENT, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.worker = self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask_to_release(self) -> None:
        self._process.communicate("release")

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)


@pytest.fixture
def agent(tmp_path: Path):  # type: ignore[no-untyped-def]
    agent = Agent(tmp_path / "agents")
    yield agent
    agent.kill()


def test_an_agent_that_lives_is_alive_and_one_that_was_killed_is_dead(agent: Agent, tmp_path: Path) -> None:
    ours = AgentLock(tmp_path / "agents")
    assert not ours.is_dead(agent.worker)
    agent.kill()
    assert ours.is_dead(agent.worker)
    assert ours.is_dead(agent.worker), "whoever looked has not taken its place"
    ours.release()


@pytest.mark.skipif(os.name != "posix", reason="stopped with a signal")
def test_an_agent_that_is_stopped_is_not_dead(agent: Agent, tmp_path: Path) -> None:
    agent.pause()
    assert not is_dead(tmp_path / "agents", agent.worker)


def test_an_agent_that_said_goodbye_is_dead_and_leaves_nothing(agent: Agent, tmp_path: Path) -> None:
    agent.ask_to_release()
    assert is_dead(tmp_path / "agents", agent.worker)
    assert list((tmp_path / "agents").iterdir()) == []


def test_an_agent_never_takes_itself_for_dead(tmp_path: Path) -> None:
    ours = AgentLock(tmp_path)
    assert not ours.is_dead(ours.worker)
    assert not is_dead(tmp_path, ours.worker)
    ours.release()
    assert is_dead(tmp_path, ours.worker)
    ours.release()


def test_two_agents_of_one_process_are_two(tmp_path: Path) -> None:
    one, other = AgentLock(tmp_path), AgentLock(tmp_path)
    assert one.worker != other.worker
    assert not one.is_dead(other.worker)
    other.release()
    assert one.is_dead(other.worker)
    one.release()


@pytest.mark.parametrize("worker", ["never-heard-of", "", "../../etc/passwd", "a/b", "ünïcode\n"])
def test_a_worker_without_a_lock_is_dead_whatever_its_name(tmp_path: Path, worker: str) -> None:
    assert is_dead(tmp_path, worker)


def test_what_the_dead_left_is_swept_away_and_the_living_keep_theirs(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    killed = Agent(folder)
    killed.kill()
    (folder / "note.txt").write_text("keep")
    ours = AgentLock(folder)
    ours.sweep()
    assert {path.name for path in folder.iterdir()} == {f"{agent.worker}.lock", f"{ours.worker}.lock", "note.txt"}
    assert not ours.is_dead(agent.worker)
    ours.release()


def test_looking_and_sweeping_never_takes_the_lock_of_one_that_starts(tmp_path: Path) -> None:
    """Many start while another sweeps: none is hindered, none is thought dead."""
    sweeper = subprocess.Popen(
        [sys.executable, "-c", SWEEPER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sweeper.stdout is not None
    sweeper.stdout.readline()
    locks = [AgentLock(tmp_path) for _ in range(300)]
    sweeper.communicate("enough")
    assert [lock.worker for lock in locks if not (tmp_path / f"{lock.worker}.lock").exists()] == []
    for lock in locks:
        lock.release()


SWEEPER = """
import sys, threading
from pathlib import Path
from comfyui_agent.store.agent_lock import AgentLock

lock = AgentLock(Path(sys.argv[1]))
stopped = threading.Event()

def sweep():
    while not stopped.is_set():
        lock.sweep()

thread = threading.Thread(target=sweep)
thread.start()
print("sweeping", flush=True)
sys.stdin.readline()
stopped.set()
thread.join()
"""
