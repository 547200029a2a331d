"""Bars from zero, each in a lane of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from comfyui_agent.lab.pages.lanes import Lanes, lay_out
from comfyui_agent.lab.pages.scales import reach
from comfyui_agent.lab.pages.shapes import LETTER, Label, Path, Picture, Rectangle, Shape, empty_picture, place


class Fill(Enum):
    """How a bar is filled; the value is its class in the style sheet. They differ without colour."""

    SOLID = "solid"
    STRIPED = "striped"
    EMPTY = "empty"
    GREY = "grey"
    SOFT = "soft"


@dataclass(frozen=True)
class Part:
    """One of the parts that bars are made of."""

    name: str
    fill: Fill


@dataclass(frozen=True)
class Bar:
    """A lane: a value per part, None where it was not measured; and the text behind the bar, a line per part."""

    name: str
    values: Sequence[float | None]
    text: str = ""


@dataclass(frozen=True)
class Bars:
    """With `is_stacked` the parts of a lane follow each other, else they lie one below the other."""

    title: str
    sentence: str
    axis: str
    parts: Sequence[Part]
    bars: Sequence[Bar]
    is_stacked: bool = False
    target: float | None = None
    target_text: str = ""

    def picture(self, width: int) -> Picture:
        if not self.bars:
            return empty_picture(width, self.title, self.sentence)
        keys, top = _key(self.parts, width) if len(self.parts) > 1 else ([], 0.0)
        thick = 18.0 if self.is_stacked or len(self.parts) == 1 else 13.0
        height = thick if self.is_stacked else thick * len(self.parts)
        high = reach(max(map(self._length, self.bars)), [] if self.target is None else [self.target])
        room = max((len(text) for bar in self.bars for text in bar.text.split("\n")), default=0) * LETTER + 16
        lanes = lay_out(width, [bar.name for bar in self.bars], height, top + 22, 0, high, max(16.0, room))
        shapes = [*keys, *lanes.frame(self.axis)]
        for number, bar in enumerate(self.bars):
            shapes += self._stack(bar, lanes, number) if self.is_stacked else self._group(bar, lanes, number, thick)
        if self.target is not None:
            shapes += lanes.target(self.target, self.target_text)
        return Picture(width, lanes.bottom + 44, self.title, self.sentence, shapes)

    def _length(self, bar: Bar) -> float:
        values = [value for value in bar.values if value is not None and value > 0]
        return (sum(values) if self.is_stacked else max(values)) if values else 0.0

    def _stack(self, bar: Bar, lanes: Lanes, number: int) -> list[Shape]:
        shapes: list[Shape] = []
        top, behind = lanes.start(number), 0.0
        for part, value in zip(self.parts, bar.values, strict=False):
            if value is not None and value > 0:
                start, end = lanes.scale(behind), lanes.scale(behind + value)
                shapes += _filled(part.fill, start, top, max(1.0, end - start), lanes.height)
                behind += value
        return [*shapes, Label("note", bar.text, lanes.scale(self._length(bar)) + 7, top + lanes.height / 2 + 4)]

    def _group(self, bar: Bar, lanes: Lanes, number: int, thick: float) -> list[Shape]:
        shapes: list[Shape] = []
        texts = bar.text.split("\n")
        start = lanes.scale(0)
        for row, (part, value) in enumerate(zip(self.parts, bar.values, strict=False)):
            top, end = lanes.start(number) + row * thick, lanes.scale(value or 0)
            if value is not None and value > 0:
                shapes += _filled(part.fill, start, top, max(1.0, end - start), thick - 2)
            if row < len(texts):
                shapes.append(Label("note", texts[row], end + 7, top + thick / 2 + 3))
        return shapes


def _key(parts: Sequence[Part], width: float) -> tuple[list[Shape], float]:
    """What each filling means, and the height of that."""
    shapes: list[Shape] = []
    x, y = 0.0, 0.0
    for part in parts:
        room = 24 + LETTER * len(part.name) + 16
        if x > 0 and x + room > width:
            x, y = 0.0, y + 20
        shapes += [*_filled(part.fill, x + 1, y + 1, 16, 11), Label("legend", part.name, x + 24, y + 11)]
        x += room
    return shapes, y + 14


def _filled(fill: Fill, x: float, y: float, width: float, height: float) -> list[Shape]:
    shapes: list[Shape] = [Rectangle(f"bar {fill.value}", x, y, width, height)]
    if fill is Fill.STRIPED:
        steps = range(2, min(int(width), 1_000), 4)
        lines = "".join(f"M{place(x + step)} {place(y)}v{place(height)}" for step in steps)
        shapes += [Path("stripes", lines)] if lines else []
    return shapes
