"""An agent is alive as long as it holds its lock, and nobody has to wait to see that it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from comfyui_agent.store.agent_lock import AgentLock, is_free

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
        self.lock = folder / f"{self.worker}.lock"

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


def test_the_lock_of_an_agent_is_held_until_it_is_killed(agent: Agent) -> None:
    assert not is_free(agent.lock)
    agent.kill()
    assert is_free(agent.lock)
    assert is_free(agent.lock), "the look has not taken it"


@pytest.mark.skipif(os.name != "posix", reason="stopped with a signal")
def test_an_agent_that_is_stopped_holds_its_lock(agent: Agent) -> None:
    agent.pause()
    assert not is_free(agent.lock)


def test_an_agent_that_said_goodbye_is_dead_and_leaves_nothing(agent: Agent, tmp_path: Path) -> None:
    agent.ask_to_release()
    assert is_free(agent.lock)
    assert list((tmp_path / "agents").iterdir()) == []


def test_an_agent_never_finds_its_own_lock_free(tmp_path: Path) -> None:
    ours = AgentLock(tmp_path)
    assert not is_free(ours.path)
    ours.release()
    assert is_free(ours.path)
    ours.release()


def test_two_agents_of_one_process_are_two(tmp_path: Path) -> None:
    one, other = AgentLock(tmp_path), AgentLock(tmp_path)
    assert one.worker != other.worker
    assert not is_free(other.path)
    other.release()
    assert (is_free(one.path), is_free(other.path)) == (False, True)
    one.release()


def test_a_lock_that_is_not_there_is_free(tmp_path: Path) -> None:
    assert is_free(tmp_path / "nowhere" / "x.lock")


def test_what_the_dead_left_is_swept_away_and_the_living_keep_theirs(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    killed = Agent(folder)
    killed.kill()
    (folder / "note.txt").write_text("keep")
    ours = AgentLock(folder)
    ours.sweep()
    assert {path.name for path in folder.iterdir()} == {f"{agent.worker}.lock", f"{ours.worker}.lock", "note.txt"}
    assert not is_free(agent.lock)
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
