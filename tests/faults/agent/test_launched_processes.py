"""ComfyUI processes that agents and commands launch, with real processes on both sides."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.fleet.launch.state import SlotFolder, Status
from support import fake_comfyui
from support.agents import AgentWorkspace, check_promises, leave, renders, submit_slow, wait_until
from support.launching import ended, launch_section, related, signal_slot, slots_in, starts_of
from support.servers import REAL_DIR, REAL_PYTHON
from support.workspaces import call_e3

DIRECTORY = Path(fake_comfyui.__path__[0])


class Launching:
    """A workspace whose servers are launched."""

    def __init__(self, root: Path, **settings: Any) -> None:
        section = launch_section(**({"directory": DIRECTORY} | settings))
        root.mkdir(parents=True)
        environment = {"E3_COMFYUI__LAUNCH": json.dumps([section]), "E3_COMFYUI__FAILOVER_SECONDS": "5"}
        self.agents = AgentWorkspace(root, [], environment)

    def e3(self, *arguments: str, code: int = 0) -> str:
        ran = call_e3(*arguments, cwd=self.agents.root, **self.agents.environment)
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout if code == 0 else ran.stderr

    @property
    def slots(self) -> list[SlotFolder]:
        return slots_in(self.agents.root)

    def wait_for(self, *statuses: Status, timeout: float = 60) -> None:
        wait_until(lambda: [slot.state().status for slot in self.slots] == list(statuses), f"{statuses}", timeout)


@pytest.fixture
def launching(tmp_path: Path) -> Iterator[Any]:
    made: list[Launching] = []

    def make(**settings: Any) -> Launching:
        made.append(Launching(tmp_path / "workspace", **settings))
        return made[-1]

    yield make
    for each in made:
        each.agents.stop_all()
        for _ in ended(each.agents.root):
            pass


def slow_renders(seconds: str) -> dict[str, str]:
    return {"E3_SIM_FLAGS": json.dumps(["--render-seconds", seconds])}


@pytest.mark.slow
def test_up_status_logs_restart_down(launching: Any) -> None:
    here = launching(per_gpu=2)
    assert "cpu-1: up" in here.e3("comfyui", "up")
    shown = json.loads(here.e3("comfyui", "status", "--json"))
    assert [(each["slot"], each["status"], each["gpu"]) for each in shown] == [
        ("cpu-1", "up", "cpu"),
        ("cpu-2", "up", "cpu"),
    ]
    assert [each["pid"] for each in shown] == [slot.pid for slot in here.slots]
    assert "ComfyUI simulator" in here.e3("comfyui", "logs", "cpu-2", "-n", "1")
    assert len(json.loads(here.e3("comfyui", "logs", "cpu-2", "--json"))) == 2
    assert [each["state"] for each in json.loads(here.e3("servers", "--json"))] == ["up", "up"]
    here.e3("comfyui", "up")
    assert [starts_of(slot) for slot in here.slots] == [1, 1]
    here.e3("comfyui", "restart", "cpu-1")
    assert [starts_of(slot) for slot in here.slots] == [2, 1]
    assert "until: e3 comfyui up" in here.e3("comfyui", "down")
    assert [related(slot) for slot in here.slots] == [[], []]
    assert "there is no process gpu7" in here.e3("comfyui", "logs", "gpu7", code=1)


def test_without_launch_there_is_one_clear_line(tmp_path: Path) -> None:
    answer = call_e3("comfyui", "status", cwd=tmp_path)
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "comfyui.launch names no ComfyUI" in answer.stderr


@pytest.mark.slow
def test_whoever_starts_one_may_be_killed_meanwhile(launching: Any) -> None:
    here = launching()
    command = [sys.executable, "-m", "comfyui_agent", "comfyui", "up"]
    environment = {**os.environ, **here.agents.environment}
    starter = subprocess.Popen(command, cwd=here.agents.root, env=environment, stdout=subprocess.DEVNULL)
    note = here.agents.root / "comfyui" / "cpu-1" / "process.json"
    wait_until(note.exists, "the first sign of the process")
    starter.kill()
    starter.wait()
    here.e3("comfyui", "up")
    assert (starts_of(here.slots[0]), len(related(here.slots[0]))) == (1, 1)


@pytest.mark.slow
def test_two_agents_with_one_launch_start_each_process_once_and_restart_what_is_killed(launching: Any) -> None:
    here = launching(per_gpu=2, environment=slow_renders("0.5"))
    names = here.agents.submit(30)
    agents = [here.agents.start() for _ in range(2)]
    here.wait_for(Status.UP, Status.UP)
    assert [starts_of(slot) for slot in here.slots] == [1, 1]
    for round_number in range(3):
        here.agents.wait_done(5 * (round_number + 1), 60)
        signal_slot(here.slots[round_number % 2], signal.SIGKILL)
        here.agents.kill(agents.pop(0))
        agents.append(here.agents.start())
    here.agents.wait_done(len(names), 90)
    for agent in agents:
        leave(agent)
    jobs = check_promises(here.agents, len(names))
    assert [job.retries_attempted for job in jobs] == [0] * len(names)
    assert [len(related(slot)) for slot in here.slots] == [1, 1]


@pytest.mark.slow
def test_a_lost_context_in_front_of_an_agent(launching: Any) -> None:
    here = launching(environment={"E3_SIM_FLAGS": json.dumps(["--cuda-lost-after", "3"])})
    here.agents.submit(8)
    assert here.agents.finish(timeout=90) == 0, here.agents.tail()
    jobs = check_promises(here.agents, 8)
    assert sum(job.retries_attempted for job in jobs) == 0
    assert starts_of(here.slots[0]) >= 2


@pytest.mark.slow
@pytest.mark.real_comfyui
@pytest.mark.skipif(not REAL_DIR, reason="E3_COMFYUI_DIR names no checkout")
@pytest.mark.timeout(600)
def test_two_real_ones_one_killed_one_hung(launching: Any) -> None:
    arguments = ["--disable-all-custom-nodes", "--disable-api-nodes"]
    here = launching(directory=Path(REAL_DIR), python=REAL_PYTHON, per_gpu=2, arguments=arguments)
    here.agents.submit(1)
    agent = here.agents.start()
    here.wait_for(Status.UP, Status.UP, timeout=240)
    names = submit_slow(here.agents, "real", 8)
    first, second = here.slots
    here.agents.wait_done(3, 180)
    pids = first.pid, second.pid
    signal_slot(first, signal.SIGKILL)
    signal_slot(second, signal.SIGSTOP)
    wait_until(lambda: first.pid != pids[0] and second.pid != pids[1], "both to be started again", 120)
    here.agents.wait_done(1 + len(names), 240)
    here.wait_for(Status.UP, Status.UP, timeout=240)
    leave(agent)
    jobs = check_promises(here.agents, 1 + len(names))
    assert [job.retries_attempted for job in jobs] == [0] * len(jobs)
    assert renders(slot.path / "output" for slot in here.slots) >= len(jobs)
    here.e3("comfyui", "down")
    assert [related(slot) for slot in here.slots] == [[], []]
