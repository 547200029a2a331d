"""How a simulator is set up. The defaults render at once, never fail and offer three checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from comfyui_agent.sim.dialect import IMITATED
from comfyui_agent.sim.durations import AT_ONCE, Duration

CHECKPOINTS = (
    "e3_dreamscape_v1.safetensors",
    "e3_inkwash_v1.safetensors",
    "v1-5-pruned-emaonly-fp16.safetensors",  # what ComfyUI's own examples and our sample payloads name
)


@dataclass(frozen=True)
class SimSettings:
    """The switches of `e3 sim`."""

    render_seconds: Duration = AT_ONCE
    model_load_seconds: Duration = AT_ONCE
    vram_gb: float = 24.0
    held_gb: float = 0.0
    failure_rate: float = 0.0
    crash_after: int | None = None
    hang_after: int | None = None
    models: tuple[str, ...] = CHECKPOINTS
    object_info: Path | None = None
    output_dir: Path | None = None
    seed: int | None = None
    imitate: str = IMITATED


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

    def of_type(self, name: str) -> Path | None:
        return {"output": self.output, "input": self.input, "temp": self.temp}.get(name)

    def locate(self, name: str) -> Path | None:
        """The file for a name such as `cat.png` or `cat.png [output]`; None if it is outside that folder."""
        bare, folder = self.annotated(name)
        folder = folder or self.input
        try:
            found = (folder / bare).resolve()
        except (OSError, RuntimeError, ValueError):  # links in circles, a null
            return None
        return found if found.is_relative_to(folder.resolve()) else None

    def annotated(self, name: str) -> tuple[str, Path | None]:
        """Split `name [input]` into the name and the folder that it names."""
        for kind in ("output", "input", "temp"):
            if name.endswith(f"[{kind}]"):
                return name[: -len(kind) - 3], self.of_type(kind)
        return name, None
