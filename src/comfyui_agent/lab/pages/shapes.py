"""Drawings as lists of shapes. `templates/drawing.html` turns them into SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDE, NARROW = 760, 340
"""A drawing is made for screens and paper, and once more for phones, with letters of the same size."""
LETTER = 7.4
"""About the width of a letter in pixels. System fonts differ, so there is room."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Path:
    """`kind` is the class in the style sheet, as for all shapes."""

    kind: str
    d: str


@dataclass(frozen=True)
class Label:
    """A text that starts at x, unless anchored at its `middle` or `end`."""

    kind: str
    text: str
    x: float
    y: float
    anchor: str = ""


@dataclass(frozen=True)
class Rectangle:
    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Ring:
    x: float
    y: float


Shape = Path | Label | Rectangle | Ring


@dataclass(frozen=True)
class Picture:
    """A drawing at one width. Title and sentence are read out to people who hear the page."""

    width: float
    height: float
    title: str
    sentence: str
    shapes: Sequence[Shape]


def empty_picture(width: float, title: str, sentence: str) -> Picture:
    return Picture(width, 48, title, sentence, [Label("axis", "Nothing was measured.", width / 2, 28, "middle")])


def place(value: float) -> str:
    """A coordinate in tenths of a pixel."""
    digits = f"{value:.1f}".removesuffix(".0")
    return "0" if digits == "-0" else digits
