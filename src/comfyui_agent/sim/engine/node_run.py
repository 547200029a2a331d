"""What a simulated node sees while it runs, and what it gives back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from PIL import Image

from comfyui_agent.sim.engine.definitions import NodeDefinition
from comfyui_agent.sim.engine.memory import VideoMemory
from comfyui_agent.sim.ports import Json
from comfyui_agent.sim.settings import Folders


class InterruptProcessingException(Exception):
    """Someone asked for the running prompt to stop."""


class Pace(Protocol):
    """Time passing in a node: it can be interrupted at every step."""

    def work(self, steps: int, draw: Callable[[int], Image.Image] | None) -> None:
        """Spend this node's share of the render time in `steps`; `draw(step)` gives the preview of one."""

    def load_model(self) -> None: ...

    def wait(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class NodeRun:
    """One run of one node; `key` stands for all that its result follows from."""

    node_id: str
    key: str
    definition: NodeDefinition
    prompt: Json
    extra_data: Json
    folders: Folders
    memory: VideoMemory
    pace: Pace
    dice: random.Random

    @property
    def picture_metadata(self) -> dict[str, Any]:
        """What a save node writes into its files: the prompt and the client's additions."""
        return {"prompt": self.prompt, **(self.extra_data.get("extra_pnginfo") or {})}


@dataclass(frozen=True)
class Result:
    """Values for the nodes after this one, and what this one shows to people."""

    values: tuple[Any, ...] = ()
    shown: Json | None = None


Behaviour = Callable[[NodeRun, Json], Result]
