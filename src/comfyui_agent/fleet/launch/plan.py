"""Which ComfyUI processes the settings ask for: one slot for each, with its port and its command line."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.config.settings import Launch

HOST = "127.0.0.1"
CPU = "cpu"
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


def digest_of(command: Sequence[str], launch: Launch) -> str:
    """Differs when a process would be started in another way."""
    return hashlib.sha256(repr((list(command), sorted(launch.environment.items()))).encode()).hexdigest()[:16]


def needs_cards(launches: Sequence[Launch]) -> bool:
    """Whether the cards of the machine have to be counted."""
    return any(launch.gpus == "all" for launch in launches)


def plan_slots(launches: Sequence[Launch], cards: int) -> list[Slot]:
    """The slots of all sections on a machine with so many cards. A port or a name is given once."""
    slots: list[Slot] = []
    ports: set[int] = set()
    numbers: Counter[str] = Counter()
    for index, launch in enumerate(launches):
        count = MOST_BY_TUNER if launch.per_gpu == "auto" else launch.per_gpu
        free = (port for port in itertools.count(launch.port_from) if port not in ports)
        for card in _cards(launch, cards):
            for number in range(count):
                numbers[card] += 1
                port = next(free)
                ports.add(port)
                tuned = launch.per_gpu == "auto"
                name, key = f"{card}-{numbers[card]}", f"comfyui.launch.{index}"
                slots.append(Slot(name, card, port, launch, key, tuned, is_spare=tuned and number > 0))
    return slots


def _cards(launch: Launch, cards: int) -> list[str]:
    if launch.gpus == CPU:
        return [CPU]
    numbers = range(cards) if launch.gpus == "all" else launch.gpus
    return [f"gpu{number}" for number in numbers]
