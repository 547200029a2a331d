"""What a simulated node sees while it runs, and what it gives back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from comfyui_agent.sim.engine.definitions import NodeDefinition
from comfyui_agent.sim.engine.memory import VideoMemory
from comfyui_agent.sim.engine.pace import RenderPace
from comfyui_agent.sim.prompt_queue import Json
from comfyui_agent.sim.settings import Folders


@dataclass(frozen=True)
class NodeRun:
    """One run of one node. `key` identifies everything that its result depends on."""

    node_id: str
    key: str
    definition: NodeDefinition
    prompt: Json
    extra_data: Json
    folders: Folders
    memory: VideoMemory
    pace: RenderPace
    dice: random.Random

    @property
    def picture_metadata(self) -> dict[str, Any]:
        """What a save node writes into its files: the prompt, and what the client added."""
        return {"prompt": self.prompt, **(self.extra_data.get("extra_pnginfo") or {})}


@dataclass(frozen=True)
class Result:
    """Values for the nodes after this one, and what this one shows to people."""

    values: tuple[Any, ...] = ()
    shown: Json | None = None


Behaviour = Callable[[NodeRun, Json], Result]
