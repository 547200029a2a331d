"""How a simulator is set up. The defaults render at once, never fail and offer three checkpoints."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from comfyui_agent.wire.dialect import IMITATED
from comfyui_agent.wire.places import Roots, split_kind

LONGEST = 1_000_000.0
FORMS = "a number of seconds such as 0.5, uniform:A:B, or lognormal:MEDIAN:SIGMA"
CHECKPOINTS = (
    "e3_dreamscape_v1.safetensors",
    "e3_inkwash_v1.safetensors",
    "v1-5-pruned-emaonly-fp16.safetensors",  # what ComfyUI's own examples and our sample payloads name
)
PAGE_MODELS = (
    "diffusion_models/z_image_turbo_bf16.safetensors",  # what the workflow names that newer pages open with
    "text_encoders/qwen_3_4b.safetensors",
    "vae/ae.safetensors",
)


@dataclass(frozen=True)
class Duration:
    """How long a piece of work takes: seconds from 0 to LONGEST, fixed or drawn from a distribution."""

    form: str
    first: float
    second: float = 0.0

    @classmethod
    def parse(cls, spec: str) -> Duration:
        """Read a SPEC of the command line; ValueError names the forms that are right."""
        form, *numbers = spec.split(":")
        try:
            if form in ("uniform", "lognormal"):
                first, second = (float(number) for number in numbers)
            else:
                form, first, second = "fixed", float(spec), 0.0
        except ValueError:
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}") from None
        numbers_fit = all(0 <= number <= LONGEST for number in (first, second))
        if not numbers_fit or (form == "uniform" and first > second):
            raise ValueError(f"{spec!r} is not a duration: give {FORMS}, with numbers from 0 to {LONGEST:.0f}")
        return cls(form, first, second)

    def draw(self, dice: random.Random) -> float:
        if self.form == "uniform":
            return dice.uniform(self.first, self.second)
        if self.form == "lognormal" and self.first > 0:
            return math.exp(min(math.log(LONGEST), dice.normalvariate(math.log(self.first), self.second)))
        return self.first


AT_ONCE = Duration("fixed", 0.0)


@dataclass(frozen=True)
class SimSettings:
    """The switches of `e3 sim`."""

    render_seconds: Duration = AT_ONCE
    model_load_seconds: Duration = AT_ONCE
    load_seconds_of: Mapping[str, Duration] = field(default_factory=dict)
    """By model, where it differs from `model_load_seconds`."""
    card: str | None = None
    vram_gb: float = 24.0
    held_gb: float = 0.0
    failure_rate: float = 0.0
    crash_after: int | None = None
    hang_after: int | None = None
    cuda_lost_after: int | None = None
    models: tuple[str, ...] = CHECKPOINTS
    object_info: Path | None = None
    output_dir: Path | None = None
    seed: int | None = None
    imitate: str = IMITATED
    frontend: Path | None = None


@dataclass(frozen=True)
class Folders:
    """Where a server keeps files; `temp` is wiped at each start."""

    output: Path
    input: Path
    temp: Path

    @classmethod
    def below(cls, output: Path) -> Folders:
        """The folders of a simulator whose pictures go to `output`. The others are hidden in it."""
        output = output.resolve()
        hidden = output / ".e3sim"
        return cls(output, hidden / "input", hidden / "temp")

    @property
    def roots(self) -> Roots:
        return {"output": self.output, "input": self.input, "temp": self.temp}

    def locate(self, name: str) -> Path | None:
        """The file for a name such as `cat.png` or `cat.png [output]`; None if it is outside that folder."""
        bare, kind = split_kind(name)
        folder = self.roots[kind or "input"]
        try:
            found = (folder / bare).resolve()
        except (OSError, RuntimeError, ValueError):  # links in circles, a null
            return None
        return found if found.is_relative_to(folder.resolve()) else None
