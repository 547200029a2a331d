"""Changes with their intervals, one lane each, around the line of no change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.lanes import Lanes, lay_out
from comfyui_agent.lab.pages.marks import Look, Series, legend, outline
from comfyui_agent.lab.pages.shapes import LETTER, Label, Path, Picture, Shape, empty_picture, place

FARTHEST = 300.0
"""In percent: whatever lies beyond is drawn at the edge, with its number."""
LOOKS = {"better": Look.DOTS, "worse": Look.TRIANGLES, "noise": Look.SQUARES, "too few": Look.CROSSES}


@dataclass(frozen=True)
class Change:
    """A relative change (0.12 is 12 % more), the ends of its interval, the verdict on it, and the change as text."""

    name: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    text: str

    @property
    def extent(self) -> list[float | None]:
        """What the axis must hold: no interval of too few values."""
        return [self.value] if self.verdict == "too few" else [self.value, self.low, self.high]


@dataclass(frozen=True)
class Changes:
    """Changes as a drawing: marks differ by verdict, lines show the intervals."""

    title: str
    sentence: str
    changes: Sequence[Change]

    def picture(self, width: int) -> Picture:
        if not self.changes:
            return empty_picture(width, self.title, self.sentence)
        known = [name for name in LOOKS if any(change.verdict == name for change in self.changes)]
        keys, top = legend([Series(name, [(0, 0)], LOOKS[name], has_line=False) for name in known], width)
        ends = [_percent(end) for change in self.changes for end in change.extent]
        room = max(len(change.text) for change in self.changes) * LETTER + 20
        names = [change.name for change in self.changes]
        lanes = lay_out(width, names, 20.0, top + 22, min(0.0, *ends), max(0.0, *ends), room)
        zero = lanes.scale(0)
        shapes = [
            *keys,
            *lanes.frame("Change from A to B (%)"),
            Label("tick", "no change", zero, lanes.top - 10, "middle"),
            Path("zero", f"M{place(zero)} {place(lanes.top - 4)}V{place(lanes.bottom)}"),
        ]
        for number, change in enumerate(self.changes):
            shapes += _shapes(change, lanes, lanes.start(number) + 10)
        return Picture(width, lanes.bottom + 44, self.title, self.sentence, shapes)


def _shapes(change: Change, lanes: Lanes, y: float) -> list[Shape]:
    look = LOOKS.get(change.verdict, Look.SQUARES)
    low, high = (change.value if end is None else end for end in (change.low, change.high))
    start, end, middle = (lanes.scale(_percent(value)) for value in (low, high, change.value))
    shapes: list[Shape] = []
    if low != high:
        kind = "whisker" if change.verdict in ("better", "worse") else "whisker dim"
        ends = _end(start, y, 5 if _percent(low) < lanes.scale.low else 0)
        ends += _end(end, y, -5 if _percent(high) > lanes.scale.high else 0)
        shapes.append(Path(kind, f"M{place(start)} {place(y)}H{place(end)}{ends}"))
    shapes.append(Path(f"marks large {look.value}", outline(look, [(middle, y)])))
    return [*shapes, Label("note", change.text, lanes.scale.end + 14, y + 4)]


def _end(x: float, y: float, tip: float) -> str:
    """The end of an interval: a stroke, or an arrow if it goes on beyond the axis."""
    return f"M{place(x + tip)} {place(y - 4)}L{place(x)} {place(y)}L{place(x + tip)} {place(y + 4)}"


def _percent(share: float | None) -> float:
    return max(-FARTHEST, min(FARTHEST, 100 * (share or 0.0)))
