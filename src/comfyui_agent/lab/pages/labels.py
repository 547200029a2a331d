"""Texts inside a plot, each put where it covers least of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.downsampling import Point
from comfyui_agent.lab.pages.markup import Html, label

LETTER = 7.4
"""About the width of a letter in pixels; system fonts differ, so there is room."""
ON_A_TEXT, OUTSIDE = 1_000, 300


@dataclass(frozen=True)
class Spot:
    """A place for a text: its anchor, as drawings have it."""

    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Box:
    """A rectangle; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def has(self, point: Point) -> bool:
        return self.left <= point[0] <= self.right and self.top <= point[1] <= self.bottom


class Labels:
    """The texts of one plot: they stay in its field, and apart from each other and from the points if they can."""

    def __init__(self, field: Box, points: Sequence[Point]) -> None:
        self._field = field
        self._points = points
        self._taken: list[Box] = []

    def put(self, kind: str, text: str, spots: Sequence[Spot]) -> Html:
        """The text at the best of the spots; of equals at the first."""
        best = min(spots, key=lambda spot: self._cost(covered(text, spot)))
        self._taken.append(covered(text, best))
        return label(kind, text, best.x, best.y, best.anchor)

    def _cost(self, box: Box) -> int:
        on_texts = sum(box.overlaps(taken) for taken in self._taken)
        field = self._field
        is_outside = (
            box.left < field.left or box.right > field.right or box.top < field.top or box.bottom > field.bottom
        )
        return on_texts * ON_A_TEXT + is_outside * OUTSIDE + sum(box.has(point) for point in self._points)


def covered(text: str, spot: Spot) -> Box:
    """What a text covers, about."""
    width = len(text) * LETTER
    left = spot.x - {"start": 0.0, "middle": width / 2, "end": width}[spot.anchor]
    return Box(left, spot.y - 11, left + width, spot.y + 4)


def beside(x: float, y: float, gap: float) -> list[Spot]:
    """The spots around a point."""
    up, down = y - gap, y + gap + 9
    sides = [Spot(x + gap, y + 4, "start"), Spot(x - gap, y + 4, "end")]
    corners = [Spot(x + 4, up, "start"), Spot(x - 4, up, "end"), Spot(x + 4, down, "start"), Spot(x - 4, down, "end")]
    return [Spot(x, up, "middle"), *sides, *corners, Spot(x, down, "middle")]


def along(y: float, left: float, right: float) -> list[Spot]:
    """The spots at a line across the field."""
    above, below, middle = y - 6, y + 15, (left + right) / 2
    return [
        *(Spot(right, above, "end"), Spot(left + 6, above, "start"), Spot(middle, above, "middle")),
        *(Spot(right, below, "end"), Spot(left + 6, below, "start"), Spot(middle, below, "middle")),
    ]


def upright(x: float, top: float, bottom: float) -> list[Spot]:
    """The spots at a line from top to bottom."""
    return [Spot(x + side, y, anchor) for y in (bottom - 8, top + 13) for side, anchor in ((-6, "end"), (6, "start"))]
