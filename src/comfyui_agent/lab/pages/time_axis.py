"""Time on the horizontal axis: seconds, minutes or hours, whichever gives round numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from comfyui_agent.lab.pages.downsampling import Point
from comfyui_agent.lab.pages.plots import Axis


@dataclass(frozen=True)
class TimeAxis:
    """How long one unit of the axis is, and its name."""

    size: float
    unit: str

    def axis(self, what: str) -> Axis:
        return Axis(f"{what} ({self.unit})")

    def points(self, points: Iterable[Point]) -> list[Point]:
        """Points at seconds, at the units of the axis."""
        return [(self.at(seconds), value) for seconds, value in points]

    def at(self, seconds: float) -> float:
        return seconds / self.size


def over(longest: float) -> TimeAxis:
    """The axis for so many seconds."""
    if longest <= 300:
        return TimeAxis(1, "s")
    return TimeAxis(60, "min") if longest <= 4 * 3600 else TimeAxis(3600, "h")
