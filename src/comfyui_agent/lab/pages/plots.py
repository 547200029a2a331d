"""Plots of one quantity against another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from comfyui_agent.lab.pages import labels, scales
from comfyui_agent.lab.pages.labels import Area, Labels, Spot
from comfyui_agent.lab.pages.marks import MOST_DRAWN, Look, Series, legend, outline, thinned
from comfyui_agent.lab.pages.scales import Scale
from comfyui_agent.lab.pages.shapes import (
    LETTER,
    NARROW,
    WIDE,
    Label,
    Path,
    Picture,
    Point,
    Rectangle,
    Ring,
    Shape,
    empty_picture,
    place,
)

HEIGHT = {WIDE: 216, NARROW: 200}


@dataclass(frozen=True)
class Axis:
    """What an axis shows, with its unit. `low` and `high` are held in it; ticks may be given."""

    label: str
    low: float | None = 0.0
    high: float | None = None
    ticks: Sequence[float] = ()


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

    def picture(self, width: int) -> Picture:
        shown = [one for one in self.series if one.points]
        if not shown:
            return empty_picture(width, self.title, self.sentence)
        keys, top = legend(shown, width) if len(shown) > 1 or shown[0].name else ([], 0.0)
        field = self._field(shown, width, top + 28)
        total = sum(len(one.points) for one in shown)
        shares = [max(60, MOST_DRAWN * len(one.points) // total) for one in shown]
        places = [field.places(thinned(one.points, most)) for one, most in zip(shown, shares, strict=True)]
        covered = [point for one, found in zip(shown, places, strict=True) for point in one.traced(found)]
        covered += [point for target in self.targets for point in field.line(target)]
        texts = Labels(Area(field.x.start, field.y.end - 8, field.x.end + 8, field.y.start), covered)
        band_names = field.band_names(self.bands, texts)
        notes = [shape for note in self.notes for shape in field.note(note, texts)]
        shapes = [
            *keys,
            *field.bands(self.bands),
            *field.axes(self.x.label, self.y.label),
            *(shape for one, found in zip(shown, places, strict=True) for shape in one.shapes(found)),
            *band_names,
            *(shape for target in self.targets for shape in field.target(target, texts)),
            *notes,
        ]
        return Picture(width, field.y.start + 42, self.title, self.sentence, shapes)

    def _field(self, shown: Sequence[Series], width: int, top: float) -> Field:
        low, high = self._span(self.y, shown, 1)
        y = scales.fitted(low, high, top + HEIGHT[width], top, most=6)
        left = max(len(y.text(tick)) for tick in y.ticks) * LETTER + 10
        low, high = self._span(self.x, shown, 0)
        if self.x.ticks:
            return Field(scales.at(self.x.ticks, low, high, left, width - 16.0), y)
        return Field(scales.fitted(low, high, left, width - 16.0, most=9 if width == WIDE else 5, is_tight=True), y)

    def _span(self, axis: Axis, series: Sequence[Series], side: int) -> tuple[float, float]:
        values = [point[side] for one in series for point in one.points]
        low = min(values) if axis.low is None else min(axis.low, *values)
        high = max(values) if axis.high is None else max(axis.high, *values)
        return low, scales.reach(high, [each.value for each in self.targets if each.is_upright == (side == 0)])


@dataclass(frozen=True)
class Field:
    """The field of a plot between its axes."""

    x: Scale
    y: Scale

    def places(self, points: Sequence[Point]) -> list[Point]:
        return [(self.x(across), self.y(up)) for across, up in points]

    def axes(self, x_label: str, y_label: str) -> list[Shape]:
        """Lines at the ticks of y, ticks of x where there is room for their numbers, and what the axes show."""
        left, right, top, bottom = self.x.start, self.x.end, self.y.end, self.y.start
        shapes: list[Shape] = [Label("axis", y_label, 0, top - 14)]
        for tick in self.y.ticks:
            level = self.y(tick)
            kind = "base" if level == bottom else "grid"
            shapes.append(Path(kind, f"M{place(left)} {place(level)}H{place(right)}"))
            shapes.append(Label("tick", self.y.text(tick), left - 8, level + 4, "end"))
        return [*shapes, *self.x.tick_shapes(bottom), Label("axis", x_label, right, bottom + 38, "end")]

    def bands(self, bands: Sequence[Band]) -> list[Shape]:
        """Every second stretch shaded."""
        top, height = self.y.end, self.y.start - self.y.end
        places = [(self.x(band.start), self.x(band.end)) for band in bands[::2]]
        return [Rectangle("band", start, top, end - start, height) for start, end in places]

    def band_names(self, bands: Sequence[Band], texts: Labels) -> list[Shape]:
        """The name of each stretch where it has room."""
        shapes: list[Shape] = []
        for band in bands:
            start, end = self.x(band.start), self.x(band.end)
            if len(band.text) * LETTER < end - start:
                shapes.append(texts.put("name", band.text, [Spot((start + end) / 2, self.y.end + 13, "middle")]))
        return shapes

    def target(self, target: Target, texts: Labels) -> list[Shape]:
        """The line of a target, or its name at the edge if it lies beyond."""
        scale = self.x if target.is_upright else self.y
        spot = scale(target.value)
        if target.value > scale.high:
            arrow = "→" if target.is_upright else "↑"
            return [Label("target", f"{target.text} {arrow}", self.x.end, self.y.end - 14, "end")]
        if target.is_upright:
            line = f"M{place(spot)} {place(self.y.start)}V{place(self.y.end)}"
            spots = labels.upright(spot, self.y.end, self.y.start)
        else:
            line = f"M{place(self.x.start)} {place(spot)}H{place(self.x.end)}"
            spots = labels.along(spot, self.x.start, self.x.end)
        return [Path("target", line), texts.put("target", target.text, spots)]

    def line(self, target: Target) -> list[Point]:
        """Points along the line of a target."""
        if target.is_upright:
            return [(self.x(target.value), y) for y in range(int(self.y.end), int(self.y.start), 2)]
        return [(x, self.y(target.value)) for x in range(int(self.x.start), int(self.x.end), 2)]

    def note(self, note: Note, texts: Labels) -> list[Shape]:
        """A mark or a ring at the point, and the number beside it."""
        ((x, y),) = self.places([note.point])
        number = texts.put("note", note.text, labels.beside(x, y, 14 if note.is_ringed else 10))
        return [number, Ring(x, y) if note.is_ringed else Path("marks point", outline(Look.DOTS, [(x, y)]))]
