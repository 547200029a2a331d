"""Which processes the settings ask for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.config.settings import Launch
from comfyui_agent.fleet.launch.plan import Slot, plan_slots

REAL = os.environ.get("E3_COMFYUI_DIR", "")


def section(**settings: Any) -> Launch:
    return Launch.model_validate({"directory": "/opt/ComfyUI", **settings})


def names(slots: list[Slot]) -> list[tuple[str, int]]:
    return [(slot.name, slot.port) for slot in slots]


def test_each_card_has_its_slots_and_each_slot_its_port() -> None:
    slots = plan_slots([section(per_gpu=2)], cards=2)
    assert names(slots) == [("gpu0-1", 8188), ("gpu0-2", 8189), ("gpu1-1", 8190), ("gpu1-2", 8191)]
    assert names(plan_slots([section(gpus=[3], port_from=9000)], cards=0)) == [("gpu3-1", 9000)]
    assert names(plan_slots([section(gpus="cpu", per_gpu=2)], cards=4)) == [("cpu-1", 8188), ("cpu-2", 8189)]
    assert plan_slots([section()], cards=0) == []


def test_sections_share_neither_names_nor_ports() -> None:
    slots = plan_slots([section(gpus=[0], per_gpu=2), section(gpus=[0, 1])], cards=2)
    assert names(slots) == [("gpu0-1", 8188), ("gpu0-2", 8189), ("gpu0-3", 8190), ("gpu1-1", 8191)]


def test_a_number_that_is_found_by_measuring_begins_with_one() -> None:
    slots = plan_slots([section(gpus=[0, 1], per_gpu="auto")], cards=2)
    assert [slot.name for slot in slots if not slot.is_spare] == ["gpu0-1", "gpu1-1"]
    assert all(slot.is_tuned for slot in slots)
    assert len({slot.port for slot in slots}) == len(slots) == 16


def test_the_command_line_has_a_place_of_its_own_for_everything() -> None:
    launch = section(gpus=[1], vram_reserve_gb=1.5, arguments=["--fast"])
    (slot,) = plan_slots([launch], cards=0)
    command = slot.command("/py", Path("/opt/ComfyUI"), Path("/w/comfyui/gpu1-1"))
    assert command == [
        *("/py", "/opt/ComfyUI/main.py", "--listen", "127.0.0.1", "--port", "8188", "--cuda-device", "1"),
        *("--output-directory", "/w/comfyui/gpu1-1/output", "--temp-directory", "/w/comfyui/gpu1-1/temp"),
        *("--user-directory", "/w/comfyui/gpu1-1/user"),
        *("--database-url", "sqlite:////w/comfyui/gpu1-1/user/comfyui.db"),
        *("--reserve-vram", "1.5", "--disable-auto-launch", "--fast"),
    ]
    (slot,) = plan_slots([section(gpus="cpu")], cards=0)
    assert "--cpu" in slot.command("/py", Path("/opt/ComfyUI"), Path("/w"))


@pytest.mark.real_comfyui
@pytest.mark.skipif(not REAL, reason="E3_COMFYUI_DIR names no checkout")
def test_comfyui_knows_every_flag() -> None:
    text = (Path(REAL) / "comfy" / "cli_args.py").read_text()
    for launch in (section(gpus=[1], vram_reserve_gb=1.5), section(gpus="cpu")):
        (slot,) = plan_slots([launch], cards=0)
        flags = [each for each in slot.command("/py", Path("/c"), Path("/w")) if each.startswith("--")]
        assert [flag for flag in flags if not re.search(rf'add_argument\("{flag}"', text)] == []
