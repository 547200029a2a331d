"""The number of processes on a card is found while it renders, by an agent that may be killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from comfyui_agent.engine.tuner import read_tunings
from support import fake_comfyui
from support.agents import AgentWorkspace, check_promises, leave, renders, start_changed, wait_until
from support.launching import end_all, launch_section, related, slots_in
from support.workspaces import call_e3

DIRECTORY = Path(fake_comfyui.__path__[0])


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentWorkspace]:
    flags = ["--card", uuid4().hex, "--render-seconds", "0.4", "--vram-gb", "80"]
    environment = {"E3_SIM_FLAGS": json.dumps(flags)}
    section = launch_section(DIRECTORY, gpus=[0], per_gpu="auto", environment=environment)
    root = tmp_path / "workspace"
    root.mkdir()
    made = AgentWorkspace(root, [], {"E3_COMFYUI__LAUNCH": json.dumps([section])})
    yield made
    made.stop_all()
    end_all(root)


def facts(agents: AgentWorkspace) -> tuple[int, bool]:
    """How many processes there are, and whether that is the last word."""
    found = read_tunings(agents.root / "comfyui").get("gpu0", {"processes": 0, "is_settled": False})
    return found["processes"], found["is_settled"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_number_grows_and_shrinks_and_survives_a_kill_with_every_job_once(agents: AgentWorkspace) -> None:
    count = 250
    agents.submit(count)
    first = start_changed(agents, "tune")
    wait_until(lambda: facts(agents)[0] >= 2, "a second process", 60)
    agents.kill(first)
    known = read_tunings(agents.root / "comfyui")["gpu0"]["rates"]
    second = start_changed(agents, "tune")
    wait_until(lambda: facts(agents)[1], "the last word", 120)
    found = read_tunings(agents.root / "comfyui")["gpu0"]
    assert found["rates"].items() >= known.items(), "what was measured before the kill was measured again"
    assert "not worth it" in found["decision"], agents.tail()
    agents.wait_done(count, 180)
    leave(second)
    number, _ = facts(agents)
    jobs = check_promises(agents, count)
    assert [job.retries_attempted for job in jobs] == [0] * count
    assert renders(slot.path / "output" for slot in slots_in(agents.root)) == count, "a prompt was rendered twice"
    assert sum(bool(related(slot)) for slot in slots_in(agents.root)) == number
    shown = call_e3("servers", cwd=agents.root, **agents.environment).stdout
    assert f"gpu0: {number} process" in shown
    assert "not worth it" in shown
    status = json.loads(call_e3("comfyui", "status", "--json", cwd=agents.root, **agents.environment).stdout)
    assert status[0]["tuning"]["processes"] == number
    tuned = [event["message"] for event in agents.events() if event["event"] == "server.tuned"]
    assert "trying 2" in tuned[0]
    assert "not worth it" in tuned[-1]
