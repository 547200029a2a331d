"""What travels between simulated nodes: enough to make the final file follow from all that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from comfyui_agent.pictures.painting import Recipe


@dataclass(frozen=True)
class Model:
    """Weights by name; `kind` is model, clip, vae or another loader's type."""

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

    Those of a film follow each other; those of a batch are different pictures.
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
    """Sampler settings that travel apart from the sampler: noise, schedule, guider; one may be made from another."""

    kind: str
    values: tuple[tuple[str, Any], ...]

    def get(self, name: str, default: Any = None) -> Any:
        """A setting by name: of this node, or of those that it was made from."""
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
