"""Changes with their intervals, one lane each, around the line of no change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages.labels import LETTER
from comfyui_agent.lab.pages.lanes import Lanes, laid
from comfyui_agent.lab.pages.marks import Look, Series, legend, outline
from comfyui_agent.lab.pages.markup import Html, joined, label, place, shape
from comfyui_agent.lab.pages.plots import nothing, picture

FARTHEST = 300.0
"""In percent: whatever lies beyond is drawn at the edge, with its number."""
LOOKS = {"better": Look.DOTS, "worse": Look.TRIANGLES, "noise": Look.SQUARES, "too few": Look.CROSSES}


@dataclass(frozen=True)
class Change:
    """A relative change (0.12 is 12 % more), what it may be from low to high, what that means, and it in words."""

    name: str
    value: float
    low: float | None
    high: float | None
    verdict: str
    text: str


@dataclass(frozen=True)
class Changes:
    """Changes as a drawing: marks differ by verdict, lines show the intervals."""

    title: str
    sentence: str
    changes: Sequence[Change]

    def svg(self, width: int) -> Html:
        """The changes at one of the widths."""
        if not self.changes:
            return picture(width, 48, self.title, self.sentence, nothing(width))
        known = [name for name in LOOKS if any(change.verdict == name for change in self.changes)]
        series = [Series(name, [(0, 0)], LOOKS[name], has_line=False) for name in known]
        keys, top = legend(series, 0, 0, width)
        ends = [_percent(end) for change in self.changes for end in _told(change)]
        room = max(len(change.text) for change in self.changes) * LETTER + 20
        names = [change.name for change in self.changes]
        lanes = laid(width, names, 20.0, top + 22, min(0.0, *ends), max(0.0, *ends), room)
        zero = lanes.scale(0)
        pieces = [
            keys,
            lanes.frame("Change from A to B (%)"),
            label("tick", "no change", zero, lanes.top - 10, "middle"),
        ]
        pieces.append(shape("path", class_="zero", d=f"M{place(zero)} {place(lanes.top - 4)}V{place(lanes.bottom)}"))
        for number, change in enumerate(self.changes):
            pieces.append(_drawn(change, lanes, lanes.start(number) + 10))
        return picture(width, lanes.bottom + 44, self.title, self.sentence, *pieces)


def _drawn(change: Change, lanes: Lanes, y: float) -> Html:
    look = LOOKS.get(change.verdict, Look.SQUARES)
    low, high = (change.value if end is None else end for end in (change.low, change.high))
    start, end, middle = (lanes.scale(_percent(value)) for value in (low, high, change.value))
    kind = "whisker" if change.verdict in ("better", "worse") else "whisker dim"
    ends = _end(start, y, 5 if _percent(low) < lanes.scale.low else 0)
    ends += _end(end, y, -5 if _percent(high) > lanes.scale.high else 0)
    return joined(
        shape("path", class_=kind, d=f"M{place(start)} {place(y)}H{place(end)}{ends}") if low != high else "",
        shape("path", class_=f"marks large {look.value}", d=outline(look, [(middle, y)])),
        label("note", change.text, lanes.scale.end + 14, y + 4),
    )


def _end(x: float, y: float, tip: float) -> str:
    """The end of an interval: a stroke, or an arrow if it goes on beyond the axis."""
    return f"M{place(x + tip)} {place(y - 4)}L{place(x)} {place(y)}L{place(x + tip)} {place(y + 4)}"


def _told(change: Change) -> list[float | None]:
    """What the axis must hold: not an interval that says nothing."""
    return [change.value] if change.verdict == "too few" else [change.value, change.low, change.high]


def _percent(share: float | None) -> float:
    return max(-FARTHEST, min(FARTHEST, 100 * (share or 0.0)))
