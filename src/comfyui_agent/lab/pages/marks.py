"""The look of a series: lines and marks that differ in shape, so that nobody needs the colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from comfyui_agent.lab.pages.shapes import LETTER, Label, Path, Point, Shape, place

MOST_DRAWN = 1_500


class Look(Enum):
    """How a series is drawn; the value is its class in the style sheet."""

    DOTS = "dots"
    TRIANGLES = "triangles"
    CROSSES = "crosses"
    SQUARES = "squares"


LOOKS = (Look.DOTS, Look.SQUARES, Look.TRIANGLES, Look.CROSSES)
OUTLINES = {
    Look.DOTS: "M{x} {y}h0",
    Look.TRIANGLES: "M{x} {y}m-4.5 3.5l4.5 -8l4.5 8z",
    Look.CROSSES: "M{x} {y}m-3.5 -3.5l7 7m0 -7l-7 7",
    Look.SQUARES: "M{x} {y}m-3 -3h6v6h-6z",
}


@dataclass(frozen=True)
class Series:
    """Points that belong together. A line joins them; marks show each."""

    name: str
    points: Sequence[Point]
    look: Look = Look.DOTS
    has_line: bool = True
    has_marks: bool = True
    is_stepped: bool = False

    def shapes(self, places: Sequence[Point]) -> list[Shape]:
        """The series with its points at these places."""
        found: list[Shape] = []
        if self.has_line and len(places) > 1:
            found.append(Path(f"line {self.look.value}", _way(places, self.is_stepped)))
        if self.has_marks or len(places) == 1:
            found.append(Path(f"marks {self.look.value}", outline(self.look, places)))
        return found

    def traced(self, places: Sequence[Point]) -> list[Point]:
        """Points all along what is drawn, its lines included."""
        found = list(places)
        if self.has_line:
            for (x, y), (next_x, next_y) in pairwise(places):
                steps = int(max(abs(next_x - x), abs(next_y - y)) / 4)
                found += [(x + (next_x - x) * n / steps, y + (next_y - y) * n / steps) for n in range(1, steps)]
        return found


def outline(look: Look, places: Sequence[Point]) -> str:
    """The marks at all these places, as one path."""
    return "".join(OUTLINES[look].format(x=place(x), y=place(y)) for x, y in places)


def legend(series: Sequence[Series], width: float) -> tuple[list[Shape], float]:
    """The name of each series, in rows as wide as there is room, and the height of them all."""
    shapes: list[Shape] = []
    x, y = 0.0, 6.0
    for one in series:
        room = 26 + LETTER * len(one.name) + 16
        if x > 0 and x + room > width:
            x, y = 0.0, y + 20
        if one.has_line:
            shapes.append(Path(f"line {one.look.value}", _way([(x, y), (x + 18, y)], False)))
        if one.has_marks:
            shapes.append(Path(f"marks {one.look.value}", outline(one.look, [(x + 9, y)])))
        shapes.append(Label("legend", one.name, x + 25, y + 4))
        x += room
    return shapes, y + 14 if shapes else 0.0


def thinned(points: Sequence[Point], most: int = MOST_DRAWN) -> list[Point]:
    """At most so many points, by x: the lowest and highest of each stretch, and the first and the last of all."""
    ordered = sorted(points, key=lambda point: point[0])
    if len(ordered) <= most:
        return ordered
    stretches = max(1, (most - 2) // 2)
    kept = {0, len(ordered) - 1}
    for stretch in range(stretches):
        numbers = range(stretch * len(ordered) // stretches, (stretch + 1) * len(ordered) // stretches)
        kept.add(min(numbers, key=lambda number: ordered[number][1]))
        kept.add(max(numbers, key=lambda number: ordered[number][1]))
    return [ordered[number] for number in sorted(kept)]


def _way(places: Sequence[Point], is_stepped: bool) -> str:
    (x, y), *others = places
    between = "H{x}V{y}" if is_stepped else "L{x} {y}"
    return f"M{place(x)} {place(y)}" + "".join(between.format(x=place(x), y=place(y)) for x, y in others)
