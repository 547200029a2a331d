"""Stages in time: a lane for each, with a mark when it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.lanes import lay_out
from comfyui_agent.lab.pages.marks import Look, outline
from comfyui_agent.lab.pages.scales import reach
from comfyui_agent.lab.pages.shapes import Label, Path, Picture, place
from comfyui_agent.lab.quantities import seconds


@dataclass(frozen=True)
class StageMark:
    """Something that happened so many seconds after the fault."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Stages:
    """Stages from the fault on, in order. The target is drawn where it is not too far off."""

    title: str
    sentence: str
    stages: Sequence[StageMark]
    target: float | None = None

    def picture(self, width: int) -> Picture:
        times = [stage.seconds for stage in self.stages]
        high = reach(max(0.0, *times), [] if self.target is None else [self.target])
        names = [stage.name for stage in self.stages]
        lanes = lay_out(width, names, 20.0, 22.0, min(0.0, *times), high, room=72.0)
        shapes = lanes.frame("Time since the fault (s)")
        for number, stage in enumerate(self.stages):
            x, y = lanes.scale(stage.seconds), lanes.start(number) + 10
            shapes.append(Path("line", f"M{place(lanes.scale(0))} {place(y)}H{place(x)}"))
            shapes.append(Path("marks point", outline(Look.DOTS, [(x, y)])))
            shapes.append(Label("note", seconds(stage.seconds), x + 9, y + 4))
        if self.target is not None:
            shapes += lanes.target(self.target, f"target {seconds(self.target)}")
        return Picture(width, lanes.bottom + 44, self.title, self.sentence, shapes)
