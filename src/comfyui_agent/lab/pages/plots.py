"""Plots of one quantity against another, as drawings in the page.

A plot draws itself at a width: once for screens and paper, once for phones, with the letters equally large in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages import labels, scales
from comfyui_agent.lab.pages.downsampling import MOST_DRAWN, Point, thinned
from comfyui_agent.lab.pages.labels import LETTER, Box, Labels, Spot
from comfyui_agent.lab.pages.marks import Look, Series, drawn, legend, outline, traced
from comfyui_agent.lab.pages.markup import Html, element, joined, label, place, shape
from comfyui_agent.lab.pages.scales import Scale

WIDE, NARROW = 760, 340
HEIGHT = {WIDE: 216, NARROW: 200}
FARTHEST_TARGET = 4.0
"""A target farther off than so many times the largest value is named at the edge: a line would flatten the rest."""


@dataclass(frozen=True)
class Axis:
    """What an axis shows, with its unit. `low` and `high` are held in it; ticks may be given."""

    label: str
    low: float | None = 0.0
    high: float | None = None
    ticks: Sequence[float] = ()
    is_whole: bool = False


@dataclass(frozen=True)
class Target:
    """A line at a value that should be reached or kept, with its name."""

    value: float
    text: str
    is_upright: bool = False


@dataclass(frozen=True)
class Note:
    """The number at a point that matters."""

    point: Point
    text: str
    is_ringed: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the horizontal axis that has a name, such as a level or a run."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Plot:
    """Series over a horizontal axis. The title states the finding, the sentence says what the plot shows."""

    title: str
    sentence: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    targets: Sequence[Target] = ()
    notes: Sequence[Note] = ()
    bands: Sequence[Band] = ()

    def svg(self, width: int) -> Html:
        """The plot at one of the widths."""
        shown = [one for one in self.series if one.points]
        if not shown:
            return picture(width, 48, self.title, self.sentence, nothing(width))
        across, down = _span(self.x, shown, 0, self._targets(True)), _span(self.y, shown, 1, self._targets(False))
        keys, top = legend(shown, 0, 0, width) if len(shown) > 1 or shown[0].name else (Html(), 0.0)
        top += 28
        bottom = top + HEIGHT.get(width, HEIGHT[WIDE])
        y = scales.fitted(*down, bottom, top, most=6, is_whole=self.y.is_whole)
        left = max(len(y.text(tick)) for tick in y.ticks) * LETTER + 10
        x = self._across(across, left, width - 16.0, most=9 if width == WIDE else 5)
        field = Field(x, y)
        whole = sum(len(one.points) for one in shown)
        places = [field.places(thinned(one.points, max(60, MOST_DRAWN * len(one.points) // whole))) for one in shown]
        covered = [point for one, found in zip(shown, places, strict=True) for point in traced(one, found)]
        covered += [point for target in self.targets for point in field.line(target)]
        texts = Labels(Box(x.start, y.end - 8, x.end + 8, y.start), covered)
        band_names = field.band_names(self.bands, texts)
        notes = [field.note(note, texts) for note in self.notes]
        return picture(
            width,
            bottom + 42,
            self.title,
            self.sentence,
            keys,
            field.bands(self.bands),
            field.axes(self.x.label, self.y.label),
            *(drawn(one, found) for one, found in zip(shown, places, strict=True)),
            band_names,
            *(field.target(target, texts) for target in self.targets),
            *notes,
        )

    def _targets(self, is_upright: bool) -> list[float]:
        return [target.value for target in self.targets if target.is_upright == is_upright]

    def _across(self, span: tuple[float, float], left: float, right: float, most: int) -> Scale:
        if self.x.ticks:
            return scales.at(self.x.ticks, *span, left, right)
        return scales.fitted(*span, left, right, most=most, is_tight=True, is_whole=self.x.is_whole)


@dataclass(frozen=True)
class Field:
    """The field of a plot between its axes."""

    x: Scale
    y: Scale

    def places(self, points: Sequence[Point]) -> list[Point]:
        return [(self.x(across), self.y(up)) for across, up in points]

    def axes(self, x_label: str, y_label: str) -> Html:
        """Lines at the ticks of y, ticks of x where there is room for their numbers, and what the axes show."""
        left, right, top, bottom = self.x.start, self.x.end, self.y.end, self.y.start
        pieces = [label("axis", y_label, 0, top - 14)]
        for tick in self.y.ticks:
            level = self.y(tick)
            kind = "base" if level == bottom else "grid"
            pieces.append(shape("path", class_=kind, d=f"M{place(left)} {place(level)}H{place(right)}"))
            pieces.append(label("tick", self.y.text(tick), left - 8, level + 4, "end"))
        pieces.append(ticks(self.x, bottom))
        pieces.append(label("axis", x_label, right, bottom + 38, "end"))
        return joined(*pieces)

    def bands(self, bands: Sequence[Band]) -> Html:
        """Every second stretch shaded."""
        top, height = self.y.end, self.y.start - self.y.end
        places = [(self.x(band.start), self.x(band.end)) for band in bands[::2]]
        shades = (shape("rect", class_="band", x=x, y=top, width=end - x, height=height) for x, end in places)
        return joined(*shades)

    def band_names(self, bands: Sequence[Band], texts: Labels) -> Html:
        """The name of each stretch where it has room."""
        pieces = []
        for band in bands:
            start, end = self.x(band.start), self.x(band.end)
            if len(band.text) * LETTER < end - start:
                pieces.append(texts.put("name", band.text, [Spot((start + end) / 2, self.y.end + 13, "middle")]))
        return joined(*pieces)

    def target(self, target: Target, texts: Labels) -> Html:
        """The line of a target, or a word at the edge behind which it lies."""
        scale = self.x if target.is_upright else self.y
        spot = scale(target.value)
        if target.value > scale.high:
            arrow = "→" if target.is_upright else "↑"
            return label("target", f"{target.text} {arrow}", self.x.end, self.y.end - 14, "end")
        if target.is_upright:
            line = f"M{place(spot)} {place(self.y.start)}V{place(self.y.end)}"
            spots = labels.upright(spot, self.y.end, self.y.start)
        else:
            line = f"M{place(self.x.start)} {place(spot)}H{place(self.x.end)}"
            spots = labels.along(spot, self.x.start, self.x.end)
        return joined(shape("path", class_="target", d=line), texts.put("target", target.text, spots))

    def line(self, target: Target) -> list[Point]:
        """Points along the line of a target."""
        if target.is_upright:
            return [(self.x(target.value), y) for y in range(int(self.y.end), int(self.y.start), 2)]
        return [(x, self.y(target.value)) for x in range(int(self.x.start), int(self.x.end), 2)]

    def note(self, note: Note, texts: Labels) -> Html:
        """A mark or a ring at the point, and the number beside it."""
        ((x, y),) = self.places([note.point])
        number = texts.put("note", note.text, labels.beside(x, y, 14 if note.is_ringed else 10))
        if note.is_ringed:
            return joined(number, shape("circle", class_="ring", cx=x, cy=y, r=8.0))
        return joined(number, shape("path", class_="marks point", d=outline(Look.DOTS, [(x, y)])))


def ticks(x: Scale, bottom: float) -> Html:
    """The ticks of a horizontal axis; numbers that would touch the last one are left out."""
    pieces, free = [], float("-inf")
    for tick in x.ticks:
        spot, half = x(tick), len(x.text(tick)) * LETTER / 2
        pieces.append(shape("path", class_="base", d=f"M{place(spot)} {place(bottom)}v5"))
        if spot - half > free:
            pieces.append(label("tick", x.text(tick), spot, bottom + 19, "middle"))
            free = spot + half + 4
    return joined(*pieces)


def picture(width: float, height: float, title: str, sentence: str, *content: str) -> Html:
    """A drawing with what it shows said for those who hear the page."""
    return element(
        "svg",
        element("title", title),
        element("desc", sentence),
        *content,
        viewBox=f"0 0 {place(width)} {place(height)}",
        role="img",
        class_="wide" if width == WIDE else "narrow",
    )


def nothing(width: float) -> Html:
    return label("axis", "Nothing was measured.", width / 2, 28, "middle")


def reach(largest: float, targets: Sequence[float]) -> float:
    """How far an axis goes: to the largest value, and to a target that is not too far off."""
    return max([largest, *(target for target in targets if largest <= 0 or target <= largest * FARTHEST_TARGET)])


def _span(axis: Axis, series: Sequence[Series], side: int, targets: Sequence[float]) -> tuple[float, float]:
    values = [point[side] for one in series for point in one.points]
    low = min(values) if axis.low is None else min(axis.low, *values)
    high = max(values) if axis.high is None else max(axis.high, *values)
    return low, reach(high, targets)
