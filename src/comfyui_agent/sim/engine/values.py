"""The values that simulated nodes pass on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from comfyui_agent.pictures.painting import Recipe


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
    def width(self) -> int:
        return self.frames[0].width

    @property
    def height(self) -> int:
        return self.frames[0].height


@dataclass(frozen=True)
class Masks:
    frames: tuple[Image.Image, ...]


@dataclass(frozen=True)
class Latent:
    """Pictures that are not decoded yet: what to paint and, after an encode, what to paint over.

    The pictures of a film are its frames; those of a batch are different pictures.
    """

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
    values: tuple[tuple[str, Any], ...]

    def get(self, name: str, default: Any = None) -> Any:
        """A setting of this node, or of those that it was made from."""
        given = dict(self.values)
        if name in given:
            return given[name]
        sources = (value for value in given.values() if isinstance(value, Settings))
        return next((found for source in sources if (found := source.get(name)) is not None), default)


@dataclass(frozen=True)
class Opaque:
    """A value of a type that the simulator knows only by name."""

    type: str
    origin: str
