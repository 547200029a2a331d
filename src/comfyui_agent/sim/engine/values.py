"""The values that simulated nodes pass on, what a node sees while it runs, and what it gives back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image

from comfyui_agent.pictures.painting import Recipe
from comfyui_agent.sim.engine.card import VideoMemory
from comfyui_agent.sim.engine.definitions import NodeDefinition
from comfyui_agent.sim.engine.pace import RenderPace
from comfyui_agent.sim.settings import Folders
from comfyui_agent.wire.prompts import Json


@dataclass(frozen=True)
class NodeRun:
    """One run of one node.

    `key` identifies everything that its result depends on, `metadata` goes into its files. `show` sends a picture to
    the client, with the number of the step and of all steps.
    """

    definition: NodeDefinition
    key: str
    metadata: Json
    folders: Folders
    memory: VideoMemory
    pace: RenderPace
    dice: random.Random
    show: Callable[[int, int, Image.Image], None]


@dataclass(frozen=True)
class Result:
    """Values for the nodes after this one, what this one shows to people, and which node showed it."""

    values: tuple[Any, ...] = ()
    shown: Json | None = None
    meta: Json | None = None


Behaviour = Callable[[NodeRun, Json], Result]


@dataclass(frozen=True)
class Model:
    """Weights by name. `kind` is model, clip, vae or the type of another loader."""

    kind: str
    name: str
    additions: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        return "+".join((self.name, *self.additions))


@dataclass(frozen=True)
class Conditioning:
    text: str


@dataclass(frozen=True)
class Images:
    frames: tuple[Image.Image, ...]

    @property
    def size(self) -> tuple[int, int]:
        return self.frames[0].size

    def each(self, change: Callable[[Image.Image], Image.Image]) -> Images:
        return Images(tuple(change(frame) for frame in self.frames))


@dataclass(frozen=True)
class Masks:
    frames: tuple[Image.Image, ...]


@dataclass(frozen=True)
class Latent:
    """Pictures that are not decoded yet: what to paint, and over what. A film has frames, a batch has pictures."""

    width: int
    height: int
    count: int
    recipe: Recipe | None = None
    base: Images | None = None
    strength: float = 1.0
    is_film: bool = False


@dataclass(frozen=True)
class Video:
    images: Images
    fps: float


@dataclass(frozen=True)
class Audio:
    seconds: float
    rate: int
    channels: int


@dataclass(frozen=True)
class Settings:
    """The inputs of a node that makes noise, a schedule or a guider for a sampler."""

    kind: str
    values: Json

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of this node, or of those that it was made from."""
        if name in self.values:
            return self.values[name]
        sources = (value for value in self.values.values() if isinstance(value, Settings))
        return next((found for source in sources if (found := source.get(name)) is not None), default)


@dataclass(frozen=True)
class Opaque:
    """A value of a type that the simulator knows only by name."""

    type: str
    origin: str
