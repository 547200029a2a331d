"""Stages in time: a lane for each, with a mark when it happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.lanes import laid, upright
from comfyui_agent.lab.pages.marks import Look, outline
from comfyui_agent.lab.pages.markup import Html, label, place, shape
from comfyui_agent.lab.pages.plots import picture, reach
from comfyui_agent.lab.pages.quantities import seconds


@dataclass(frozen=True)
class Stage:
    """Something that happened so many seconds after the fault."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Stages:
    """Stages from the fault on, in order; the target is drawn in where it is not too far off."""

    title: str
    sentence: str
    stages: Sequence[Stage]
    target: float | None = None

    def svg(self, width: int) -> Html:
        """The stages at one of the widths."""
        times = [stage.seconds for stage in self.stages]
        high = reach(max(0.0, *times), [] if self.target is None else [self.target])
        names = [stage.name for stage in self.stages]
        lanes = laid(width, names, 20.0, 22.0, min(0.0, *times), high, room=72.0)
        pieces = [lanes.frame("Time since the fault (s)")]
        for number, stage in enumerate(self.stages):
            x, y = lanes.scale(stage.seconds), lanes.start(number) + 10
            start = place(lanes.scale(0))
            pieces.append(shape("path", class_="line", d=f"M{start} {place(y)}H{place(x)}"))
            pieces.append(shape("path", class_="marks point", d=outline(Look.DOTS, [(x, y)])))
            pieces.append(label("note", seconds(stage.seconds), x + 9, y + 4))
        if self.target is not None:
            pieces.append(upright(lanes, self.target, f"target {seconds(self.target)}"))
        return picture(width, lanes.bottom + 44, self.title, self.sentence, *pieces)
