"""Texts inside a plot, each put where it covers least of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.shapes import LETTER, Label, Point

ON_A_TEXT, OUTSIDE = 1_000, 300


@dataclass(frozen=True)
class Spot:
    """A place for a text."""

    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Area:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Area) -> bool:
        is_beside = self.right <= other.left or other.right <= self.left
        return not (is_beside or self.bottom <= other.top or other.bottom <= self.top)

    def has(self, point: Point) -> bool:
        return self.left <= point[0] <= self.right and self.top <= point[1] <= self.bottom


class Labels:
    """The texts of one plot. They stay in its field, and apart from each other and from the points if they can."""

    def __init__(self, field: Area, points: Sequence[Point]) -> None:
        self._field = field
        self._points = points
        self._taken: list[Area] = []

    def put(self, kind: str, text: str, spots: Sequence[Spot]) -> Label:
        """The text at the best of the spots; of equals at the first."""
        best = min(spots, key=lambda spot: self._cost(covered(text, spot)))
        self._taken.append(covered(text, best))
        return Label(kind, text, best.x, best.y, best.anchor)

    def _cost(self, area: Area) -> int:
        on_texts = sum(area.overlaps(taken) for taken in self._taken)
        corners = ((area.left, area.top), (area.right, area.bottom))
        is_outside = not all(map(self._field.has, corners))
        return on_texts * ON_A_TEXT + is_outside * OUTSIDE + sum(map(area.has, self._points))


def covered(text: str, spot: Spot) -> Area:
    """About what a text covers."""
    width = len(text) * LETTER
    left = spot.x - {"start": 0.0, "middle": width / 2, "end": width}[spot.anchor]
    return Area(left, spot.y - 11, left + width, spot.y + 4)


def beside(x: float, y: float, gap: float) -> list[Spot]:
    """The spots around a point."""
    up, down = y - gap, y + gap + 9
    sides = [Spot(x + gap, y + 4, "start"), Spot(x - gap, y + 4, "end")]
    corners = [Spot(x + 4, up, "start"), Spot(x - 4, up, "end"), Spot(x + 4, down, "start"), Spot(x - 4, down, "end")]
    return [Spot(x, up, "middle"), *sides, *corners, Spot(x, down, "middle")]


def along(y: float, left: float, right: float) -> list[Spot]:
    """The spots at a line across the field."""
    places = ((right, "end"), (left + 6, "start"), ((left + right) / 2, "middle"))
    return [Spot(x, height, anchor) for height in (y - 6, y + 15) for x, anchor in places]


def upright(x: float, top: float, bottom: float) -> list[Spot]:
    """The spots at a line from top to bottom."""
    return [Spot(x + side, y, anchor) for y in (bottom - 8, top + 13) for side, anchor in ((-6, "end"), (6, "start"))]
