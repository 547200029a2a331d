"""Drawings in lanes, one below the other. The name of a lane stands left of it, on a phone above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages import scales
from comfyui_agent.lab.pages.scales import Scale
from comfyui_agent.lab.pages.shapes import LETTER, WIDE, Label, Path, Shape, place

WIDEST_NAME = 240.0
NAME_HEIGHT = 18.0


@dataclass(frozen=True)
class Lanes:
    """Where the lanes lie, and the scale across them."""

    width: int
    names: Sequence[str]
    height: float
    top: float
    scale: Scale

    @property
    def bottom(self) -> float:
        return self.top + self._pitch * len(self.names) + 4

    def start(self, number: int) -> float:
        """The upper edge of a lane, below its name."""
        return self.top + self._pitch * number + (0 if self.width == WIDE else NAME_HEIGHT)

    def frame(self, text: str) -> list[Shape]:
        """Names, lines at the ticks, and the axis below."""
        shapes: list[Shape] = []
        for tick in self.scale.ticks:
            kind = "base" if tick == 0 else "grid"
            shapes.append(Path(kind, f"M{place(self.scale(tick))} {place(self.top - 4)}V{place(self.bottom)}"))
        for number, name in enumerate(self.names):
            middle = self.start(number) + self.height / 2 + 4
            if self.width == WIDE:
                edge = self.scale.start - 12
                shapes.append(Label("lane", _short(name, edge), edge, middle, "end"))
            else:
                shapes.append(Label("lane", _short(name, self.width), 6, self.start(number) - 5))
        shapes += self.scale.tick_shapes(self.bottom)
        return [*shapes, Label("axis", text, self.scale.end, self.bottom + 38, "end")]

    def target(self, value: float, text: str) -> list[Shape]:
        """A line across all lanes with its name above, or its name at the edge if it lies beyond."""
        spot, above = self.scale(value), self.top - 10
        if value > self.scale.high:
            return [Label("target", f"{text} →", spot, above, "end")]
        anchor = "end" if spot - len(text) * LETTER > self.scale.start else "start"
        line = f"M{place(spot)} {place(self.top - 6)}V{place(self.bottom)}"
        return [Path("target", line), Label("target", text, spot, above, anchor)]

    @property
    def _pitch(self) -> float:
        return self.height + (8 if self.width == WIDE else NAME_HEIGHT + 6)


def lay_out(
    width: int, names: Sequence[str], height: float, top: float, low: float, high: float, room: float = 16.0
) -> Lanes:
    """Lanes for values from low to high, with room at the right for the numbers behind them."""
    left = 6.0 if low < 0 else 1.0
    if width == WIDE:
        left = min(WIDEST_NAME, max(len(name) for name in names) * LETTER + 16)
    scale = scales.fitted(low, high, left, width - room, most=8 if width == WIDE else 5, is_tight=True)
    return Lanes(width, names, height, top, scale)


def _short(name: str, room: float) -> str:
    letters = max(2, int(room / LETTER))
    return name if len(name) <= letters else name[: letters - 1] + "…"
