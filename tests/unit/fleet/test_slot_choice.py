"""Which process of a tuned card comes, which one goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from comfyui_agent.config.settings import Launch
from comfyui_agent.fleet.launch.lifecycle import LaunchLimits
from comfyui_agent.fleet.launch.plan import plan_slots
from comfyui_agent.fleet.launch.state import SlotFolder, Status
from comfyui_agent.fleet.launch.supervisor import Supervisor
from support.engine import Room

CARD = "gpu0"


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    room = Room(tmp_path)
    slots = plan_slots([Launch(directory=str(tmp_path), gpus=(0,), per_gpu="auto")], 1)

    async def note(event: object) -> None:
        """Nobody listens."""

    for slot in slots:
        SlotFolder(room.workspace.processes / slot.name).prepare()
    return Supervisor(slots, room.workspace, None, room.store, room.clock, note, LaunchLimits())  # type: ignore[arg-type]


async def test_processes_come_in_order_and_the_last_one_goes_first(supervisor: Supervisor) -> None:
    assert supervisor.processes(CARD) == 1
    assert [await supervisor.grow(CARD) for _ in range(3)] == ["gpu0-2", "gpu0-3", "gpu0-4"]
    assert [await supervisor.shrink(CARD) for _ in range(4)] == ["gpu0-4", "gpu0-3", "gpu0-2", None]
    assert supervisor.processes(CARD) == 1


async def test_one_that_was_given_up_goes_before_those_that_work(supervisor: Supervisor, tmp_path: Path) -> None:
    for _ in range(2):
        await supervisor.grow(CARD)
    assert supervisor.failure(CARD) == ""
    broken = SlotFolder(tmp_path / "comfyui" / "gpu0-2")
    broken.change(lambda state: replace(state, status=Status.FAILED, reason="port 8189 is taken"))
    assert supervisor.failure(CARD) == "port 8189 is taken"
    assert await supervisor.shrink(CARD) == "gpu0-2"
    assert (supervisor.processes(CARD), supervisor.failure(CARD)) == (2, "")
