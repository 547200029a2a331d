"""Drawings in lanes, one below the other: bars, stacks of parts, changes with their intervals, stages in time.

On wide paper the name of a lane stands left of it, on a phone above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from comfyui_agent.lab.pages import scales
from comfyui_agent.lab.pages.labels import LETTER
from comfyui_agent.lab.pages.markup import Html, joined, label, place, shape
from comfyui_agent.lab.pages.plots import WIDE, nothing, picture, reach, ticks
from comfyui_agent.lab.pages.scales import Scale

WIDEST_NAME = 240.0
NAME_HEIGHT = 18.0


class Fill(Enum):
    """How a bar is filled; the value is its class in the style sheet. None needs its colour to be told apart."""

    SOLID = "solid"
    STRIPED = "striped"
    EMPTY = "empty"
    GREY = "grey"
    SOFT = "soft"


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
        """The upper edge of a lane's own room."""
        return self.top + self._pitch * number + (0 if self.width == WIDE else NAME_HEIGHT)

    def frame(self, text: str) -> Html:
        """Names, lines at the ticks, and the axis below."""
        pieces = []
        for tick in self.scale.ticks:
            kind = "base" if tick == 0 else "grid"
            spot = place(self.scale(tick))
            pieces.append(shape("path", class_=kind, d=f"M{spot} {place(self.top - 4)}V{place(self.bottom)}"))
        for number, name in enumerate(self.names):
            middle = self.start(number) + self.height / 2 + 4
            if self.width == WIDE:
                edge = self.scale.start - 12
                pieces.append(label("lane", _short(name, edge), edge, middle, "end"))
            else:
                pieces.append(label("lane", _short(name, self.width), 6, self.start(number) - 5))
        pieces.append(ticks(self.scale, self.bottom))
        return joined(*pieces, label("axis", text, self.scale.end, self.bottom + 38, "end"))

    @property
    def _pitch(self) -> float:
        return self.height + (8 if self.width == WIDE else NAME_HEIGHT + 6)


def laid(
    width: int, names: Sequence[str], height: float, top: float, low: float, high: float, room: float = 16.0
) -> Lanes:
    """Lanes for values from low to high, with room at the right for the numbers behind them."""
    left = min(WIDEST_NAME, max(len(name) for name in names) * LETTER + 16) if width == WIDE else 0.0
    left = left if width == WIDE else 6.0 if low < 0 else 1.0
    scale = scales.fitted(low, high, left, width - room, most=8 if width == WIDE else 5, is_tight=True)
    return Lanes(width, names, height, top, scale)


@dataclass(frozen=True)
class Part:
    """One of the parts that bars are made of: its name and how it is filled."""

    name: str
    fill: Fill


@dataclass(frozen=True)
class Bar:
    """A lane: a value per part, None where it was not measured; and the text behind the bar."""

    name: str
    values: Sequence[float | None]
    text: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars from zero. With `is_stacked` the parts of a lane follow each other, else they lie one below the other."""

    title: str
    sentence: str
    axis: str
    parts: Sequence[Part]
    bars: Sequence[Bar]
    is_stacked: bool = False
    target: float | None = None
    target_text: str = ""

    def svg(self, width: int) -> Html:
        """The bars at one of the widths."""
        if not self.bars:
            return picture(width, 48, self.title, self.sentence, nothing(width))
        keys, top = key(self.parts, width) if len(self.parts) > 1 else (Html(), 0.0)
        thick = 18.0 if self.is_stacked or len(self.parts) == 1 else 13.0
        height = thick if self.is_stacked else thick * len(self.parts)
        high = reach(max(map(self._length, self.bars)), [] if self.target is None else [self.target])
        room = max((len(text) for bar in self.bars for text in bar.text.split("\n")), default=0) * LETTER + 16
        lanes = laid(width, [bar.name for bar in self.bars], height, top + 22, 0, high, max(16.0, room))
        pieces = [keys, lanes.frame(self.axis)]
        for number, bar in enumerate(self.bars):
            pieces.append(self._drawn(bar, lanes, number, thick))
        if self.target is not None:
            pieces.append(upright(lanes, self.target, self.target_text))
        return picture(width, lanes.bottom + 44, self.title, self.sentence, *pieces)

    def _length(self, bar: Bar) -> float:
        values = [value for value in bar.values if value is not None and value > 0]
        return (sum(values) if self.is_stacked else max(values)) if values else 0.0

    def _drawn(self, bar: Bar, lanes: Lanes, number: int, thick: float) -> Html:
        pieces, behind = [], 0.0
        texts = bar.text.split("\n")
        for row, (part, value) in enumerate(zip(self.parts, bar.values, strict=False)):
            top = lanes.start(number) + (0 if self.is_stacked else row * thick)
            if value is not None and value > 0:
                start, end = lanes.scale(behind), lanes.scale(behind + value)
                pieces.append(
                    filled(part.fill, start, top, max(1.0, end - start), thick - (0 if self.is_stacked else 2))
                )
                behind += value if self.is_stacked else 0.0
            if not self.is_stacked and row < len(texts):
                pieces.append(label("note", texts[row], lanes.scale(value or 0) + 7, top + thick / 2 + 3))
        if self.is_stacked:
            end = lanes.scale(self._length(bar)) + 7
            pieces.append(label("note", bar.text, end, lanes.start(number) + thick / 2 + 4))
        return joined(*pieces)


def key(parts: Sequence[Part], width: float) -> tuple[Html, float]:
    """What each filling means, and the height of that."""
    pieces, x, y = [], 0.0, 0.0
    for part in parts:
        room = 24 + LETTER * len(part.name) + 16
        if x > 0 and x + room > width:
            x, y = 0.0, y + 20
        pieces.append(filled(part.fill, x + 1, y + 1, 16, 11))
        pieces.append(label("legend", part.name, x + 24, y + 11))
        x += room
    return joined(*pieces), y + 14


def filled(fill: Fill, x: float, y: float, width: float, height: float) -> Html:
    """A rectangle with its filling."""
    rectangle = shape("rect", class_=f"bar {fill.value}", x=x, y=y, width=width, height=height)
    if fill is not Fill.STRIPED:
        return rectangle
    lines = "".join(f"M{place(x + step)} {place(y)}v{place(height)}" for step in range(2, min(int(width), 1_000), 4))
    return joined(rectangle, shape("path", class_="stripes", d=Html(lines))) if lines else rectangle


def upright(lanes: Lanes, value: float, text: str) -> Html:
    """A target across all lanes, its name above; or a word that it lies beyond."""
    spot, above = lanes.scale(value), lanes.top - 10
    if value > lanes.scale.high:
        return label("target", f"{text} →", spot, above, "end")
    anchor = "end" if spot - len(text) * LETTER > lanes.scale.start else "start"
    line = f"M{place(spot)} {place(lanes.top - 6)}V{place(lanes.bottom)}"
    return joined(shape("path", class_="target", d=line), label("target", text, spot, above, anchor))


def _short(name: str, room: float) -> str:
    letters = max(2, int(room / LETTER))
    return name if len(name) <= letters else name[: letters - 1] + "…"
