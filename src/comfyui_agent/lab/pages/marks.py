"""The look of a series: lines and marks that differ in shape, so that nobody needs the colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from comfyui_agent.lab.pages.downsampling import Point
from comfyui_agent.lab.pages.labels import LETTER
from comfyui_agent.lab.pages.markup import Html, joined, label, place, shape


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


def drawn(series: Series, places: Sequence[Point]) -> Html:
    """A series whose points lie at these places."""
    pieces = []
    if series.has_line and len(places) > 1:
        pieces.append(shape("path", class_=f"line {series.look.value}", d=_way(places, series.is_stepped)))
    if series.has_marks or len(places) == 1:
        pieces.append(shape("path", class_=f"marks {series.look.value}", d=outline(series.look, places)))
    return joined(*pieces)


def traced(series: Series, places: Sequence[Point]) -> list[Point]:
    """Points all along what is drawn of a series, its lines included."""
    found = list(places)
    if series.has_line:
        for (x, y), (next_x, next_y) in pairwise(places):
            steps = int(max(abs(next_x - x), abs(next_y - y)) / 4)
            found += [(x + (next_x - x) * n / steps, y + (next_y - y) * n / steps) for n in range(1, steps)]
    return found


def outline(look: Look, places: Sequence[Point]) -> Html:
    """The marks at all these places, as one path."""
    return Html("".join(OUTLINES[look].format(x=place(x), y=place(y)) for x, y in places))


def legend(series: Sequence[Series], left: float, top: float, width: float) -> tuple[Html, float]:
    """What each series is, in rows as wide as there is room; and the height of that."""
    pieces: list[Html] = []
    x, y = left, top + 6
    for one in series:
        name = one.name
        room = 26 + LETTER * len(name) + 16
        if x > left and x + room > left + width:
            x, y = left, y + 20
        sample = [(x, y), (x + 18, y)] if one.has_line and not one.has_marks else [(x + 9, y)]
        if one.has_line:
            pieces.append(shape("path", class_=f"line {one.look.value}", d=_way([(x, y), (x + 18, y)], False)))
        if one.has_marks:
            pieces.append(shape("path", class_=f"marks {one.look.value}", d=outline(one.look, sample)))
        pieces.append(label("legend", name, x + 25, y + 4))
        x += room
    return joined(*pieces), (y - top + 14 if pieces else 0)


def _way(places: Sequence[Point], is_stepped: bool) -> Html:
    (x, y), *others = places
    between = "H{x}V{y}" if is_stepped else "L{x} {y}"
    return Html(f"M{place(x)} {place(y)}" + "".join(between.format(x=place(x), y=place(y)) for x, y in others))
