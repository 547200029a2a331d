"""The tuner: what it leaves for others, and what it makes of what others left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.events import Event
from comfyui_agent.engine.tuner import TUNING, Tuner, read_tunings, tuning_lines
from comfyui_agent.fleet.launch.plan import Slot
from support.engine import Room

FACTS: dict[str, Any] = {
    "processes": 2,
    "per_minute": {"1": 57.0, "2": 87.5, "3": 90.0},
    "memory": {"1": 0, "2": 0, "3": 0},
    "decision": "90 a minute (+3 %) with 3 processes: not worth it; 2 it is",
    "is_settled": True,
    "rates": {"1": 1.0, "2": 1.5},
    "kept": 2,
    "ceiling": 2,
    "reference": {"abc": 1.0},
}


class Processes:
    """A supervisor of one card that does as it is told."""

    slots: Sequence[Slot] = [Slot(f"gpu0-{n}", "gpu0", 8187 + n, is_tuned=True) for n in (1, 2, 3)]

    def __init__(self, number: int) -> None:
        self.number = number
        self.reason = ""

    def processes(self, card: str) -> int:  # noqa: ARG002
        return self.number

    def failure(self, card: str) -> str:  # noqa: ARG002
        return self.reason

    async def grow(self, card: str) -> str | None:  # noqa: ARG002
        self.number += 1
        return None

    async def shrink(self, card: str) -> str | None:  # noqa: ARG002
        self.number -= 1
        return None


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def tuner(room: Room, processes: Processes, told: list[Event] | None = None) -> Tuner:
    async def note(event: Event) -> None:
        (told if told is not None else []).append(event)

    folder = room.workspace.processes
    folder.mkdir(exist_ok=True)
    return Tuner(processes, SimpleNamespace(servers={}), room.store, room.clock, note, folder)


def leave(room: Room, facts: Any) -> None:
    room.workspace.processes.mkdir(exist_ok=True)
    (room.workspace.processes / TUNING).write_text(json.dumps(facts))


async def test_it_goes_on_from_what_a_killed_agent_left(room: Room) -> None:
    leave(room, {"gpu0": FACTS, "gpu7": FACTS})
    await room.submit("one")
    found = tuner(room, Processes(2))
    await found.look()
    tuning = found.tunings["gpu0"].found
    assert (tuning.rates, tuning.ceiling, tuning.is_settled) == ({1: 1.0, 2: 1.5}, 2, True)
    assert list(found.tunings) == ["gpu0"]


async def test_what_was_found_stays_to_be_seen_when_there_is_nothing_to_do(room: Room) -> None:
    leave(room, {"gpu0": FACTS})
    told: list[Event] = []
    found = tuner(room, Processes(2), told)
    await found.look()
    tuning = found.tunings["gpu0"].found
    assert (tuning.per_minute, tuning.is_settled, told) == ({}, False, [])
    shown = read_tunings(room.workspace.processes)["gpu0"]
    assert (shown["per_minute"], shown["rates"]) == ({1: 57.0, 2: 87.5, 3: 90.0}, {})


async def test_a_process_that_was_given_up_is_told_of_and_done_without(room: Room) -> None:
    leave(room, {"gpu0": FACTS | {"processes": 3}})
    await room.submit("one")
    told: list[Event] = []
    processes = Processes(3)
    processes.reason = "port 8190 is taken"
    await tuner(room, processes, told).look()
    assert (processes.number, [event.message for event in told]) == (
        2,
        ["gpu0: a process of 3 was given up: port 8190 is taken; 2 it is"],
    )


async def test_of_several_agents_one_tunes(room: Room) -> None:
    await room.submit("one")
    first, second = tuner(room, Processes(1)), tuner(room, Processes(1))
    await first.look()
    (room.workspace.processes / TUNING).unlink()
    await second.look()
    assert read_tunings(room.workspace.processes) == {}
    first.lock.release()
    await second.look()
    assert read_tunings(room.workspace.processes)["gpu0"]["processes"] == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"gpu0": 3}', '{"gpu0": {"processes": 2}}'])
def test_a_file_that_makes_no_sense_is_no_tuning(tmp_path: Path, text: str) -> None:
    (tmp_path / TUNING).write_text(text)
    assert read_tunings(tmp_path) == {}


def test_a_line_for_each_card(room: Room) -> None:
    leave(room, {"gpu0": FACTS, "gpu1": {**FACTS, "processes": 1, "per_minute": {}, "decision": "measuring"}})
    launch = {"comfyui": {"launch": [{"directory": "/opt/ComfyUI"}]}}
    workspace = Workspace(room.workspace.root, Settings.model_validate(launch))
    assert tuning_lines(workspace) == {
        "gpu0": "gpu0: 2 processes: 57 → 88 a minute; 90 a minute (+3 %) with 3 processes: not worth it; 2 it is",
        "gpu1": "gpu1: 1 process; measuring",
    }
    assert tuning_lines(room.workspace) == {}, "nothing is launched there"
