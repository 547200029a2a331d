"""Which ComfyUI processes the settings ask for: one slot for each, with its port and its command line."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.config.settings import Launch
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.fleet.launch.state import SlotFolder
from comfyui_agent.fleet.nvml import Nvml

HOST = "127.0.0.1"
CPU = "cpu"
NO_CARD = "comfyui.launch: this machine has no NVIDIA card: write gpus: cpu, or a list such as gpus: [0]"
MOST_BY_TUNER = 8
"""Slots of a card whose number is found by measuring."""


@dataclass(frozen=True)
class Slot:
    """One process that may run. Its name is also its folder's."""

    name: str
    card: str
    port: int
    launch: Launch | None = None
    """None: it is not in the settings any more."""
    key: str = "comfyui.launch"
    is_tuned: bool = False
    """Whether the number of processes on its card is `auto`."""
    is_spare: bool = False
    """Whether it waits until a tuner wants it."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def folder(self, workspace: Workspace) -> SlotFolder:
        return SlotFolder(workspace.processes / self.name)

    def command(self, python: str, directory: Path, folder: Path) -> list[str]:
        """The command line. What the user adds comes last, so that it wins."""
        assert self.launch is not None
        command = [python, str(directory / "main.py"), "--listen", HOST, "--port", str(self.port)]
        command += ["--cpu"] if self.card == CPU else ["--cuda-device", self.card.removeprefix("gpu")]
        for name in ("output", "temp", "user"):
            command += [f"--{name}-directory", str(folder / name)]
        command += ["--database-url", f"sqlite:///{folder / 'user' / 'comfyui.db'}"]
        reserve = self.launch.vram_reserve_gb
        command += [] if reserve is None else ["--reserve-vram", f"{reserve:g}"]
        return [*command, "--disable-auto-launch", *self.launch.arguments]


def slots_here(workspace: Workspace) -> list[Slot]:
    """The slots that the settings ask for on this machine. Counting its cards may be slow."""
    launches, cards = workspace.settings.comfyui.launch, 0
    if any(launch.gpus == "all" for launch in launches):
        with contextlib.closing(Nvml()) as nvml:
            cards = nvml.count()
    return plan_slots(launches, cards)


def plan_slots(launches: Sequence[Launch], cards: int) -> list[Slot]:
    """The slots of all sections on a machine with so many cards. A port or a name is given once."""
    slots: list[Slot] = []
    numbers: Counter[str] = Counter()
    for index, launch in enumerate(launches):
        tuned, taken = launch.per_gpu == "auto", {slot.port for slot in slots}
        count = MOST_BY_TUNER if launch.per_gpu == "auto" else launch.per_gpu
        ports = (port for port in itertools.count(launch.port_from) if port not in taken)
        gpus = range(cards) if launch.gpus == "all" else launch.gpus
        for card in [CPU] if launch.gpus == CPU else [f"gpu{number}" for number in gpus]:
            for number in range(count):
                numbers[card] += 1
                name, key = f"{card}-{numbers[card]}", f"comfyui.launch.{index}"
                slots.append(Slot(name, card, next(ports), launch, key, tuned, is_spare=tuned and number > 0))
    return slots
