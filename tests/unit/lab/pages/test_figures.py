"""Figures: every point and every bar lies where the numbers say."""

from __future__ import annotations

import itertools
import math
import random
import re
from typing import Any

import pytest

from comfyui_agent.lab.pages.figures import (
    LOOKS,
    Axis,
    Band,
    Bar,
    Interval,
    Lane,
    Lanes,
    Note,
    Plot,
    Point,
    Series,
    Target,
    fitted,
    stacked,
    thinned,
    time_axis,
)
from unit.lab.pages.made import Parsed, drawn, heights, line, marks, percent

FILLS = ("empty", "solid", "striped")
KEYS = {"Queue": "empty", "Execution": "solid", "Transfer": "striped"}


def plot(*series: Series, **facts: Any) -> Plot:
    about = {"title": "It is fast", "x": Axis("Time (s)"), "y": Axis("Duration (s)")}
    return Plot(**{**about, "series": series, **facts})


def lanes(*shown: Lane, **facts: Any) -> Lanes:
    return Lanes("It waits", "Duration (s)", shown, **facts)


def bars(page: Parsed, fill: str) -> list[tuple[float, float]]:
    """Where the bars of a filling begin and how long they are, without that of the key."""
    found = [(bar["x"], bar["width"]) for bar in page.named("rect", fill)]
    return [(percent(x), percent(width)) for x, width in found if x.endswith("%")]


def has_sound_numbers(page: Parsed) -> bool:
    written = " ".join(value for _, found in page.elements for value in found.values())
    return not re.search(r"nan|inf|\de[+-]?\d", written)


def test_ticks_are_round_numbers_that_hold_the_values() -> None:
    assert fitted(0, 47.3).ticks == (0, 10, 20, 30, 40, 50)
    small = fitted(0, 0.31)
    assert [small.text(tick) for tick in small.ticks] == ["0.0", "0.1", "0.2", "0.3", "0.4"]
    gigabytes = fitted(0, 16_384, 1024)
    assert [gigabytes.text(tick) for tick in gigabytes.ticks] == ["0", "5", "10", "15", "20"]


def test_a_tight_scale_ends_at_the_values_and_its_ticks_lie_inside() -> None:
    scale = fitted(3, 47, is_tight=True)
    assert (scale.low, scale.high, scale.ticks) == (3, 47, (10, 20, 30, 40))
    assert [scale(-5), scale(25), scale(99)] == [0, 50, 100]


@pytest.mark.parametrize("is_tight", [True, False])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 0), (5, 5), (-3, -3), (0, 1e-9), (0, 1e15), (-1e15, 1e15), (1e15, 1e15 + 1), (0.1, 0.1)],
)
def test_any_values_make_a_scale_with_few_ticks(low: float, high: float, is_tight: bool) -> None:
    scale = fitted(low, high, is_tight=is_tight)
    assert 1 <= len(scale.ticks) <= 9
    assert scale.low < scale.high
    assert all(math.isfinite(scale(value)) and 0 <= scale(value) <= 100 for value in (low, high, 0, *scale.ticks))
    assert "-0" not in map(scale.text, scale.ticks)


def test_thinning_keeps_the_extremes_and_the_ends() -> None:
    chance = random.Random(1)
    points = [(float(at), chance.random()) for at in range(20_000)]
    points[777], points[15_432] = (777.0, 50.0), (15_432.0, -50.0)
    kept = thinned(points, most=1_000)
    assert len(kept) <= 1_000
    assert kept == sorted(kept)
    assert {points[0], points[-1], (777.0, 50.0), (15_432.0, -50.0)} <= set(kept)
    assert thinned([(2, 5), (1, 7)], most=10) == [(1, 7), (2, 5)]


@pytest.mark.parametrize(("longest", "label"), [(300, "Time (s)"), (301, "Time (min)"), (20_000, "Time (h)")])
def test_time_is_in_the_unit_that_gives_round_numbers(longest: float, label: str) -> None:
    assert time_axis("Time", [Series("", [(longest, 1)])]).label == label


def test_a_point_lies_where_the_axes_say() -> None:
    page = drawn(plot(Series("", [(0, 0), (5, 20), (10, 40)])))
    ticks = heights(page)
    assert marks(page, "dots") == [(0, ticks["0"]), (50, ticks["20"]), (100, ticks["40"])]
    assert line(page) == marks(page, "dots")
    assert page.said("text", "axis") == ["Duration (s)", "Time (s)"]


def test_the_target_is_a_line_at_its_height_with_its_name() -> None:
    page = drawn(plot(Series("", [(0, 0), (10, 30)]), targets=[Target(45, "target 45 s")]))
    (target,) = page.named("line", "target")
    assert heights(page)["50"] < percent(target["y1"]) < heights(page)["40"]
    assert page.said("text", "target") == ["target 45 s"]


def test_a_target_far_off_is_named_at_the_edge_and_flattens_nothing() -> None:
    page = drawn(plot(Series("", [(0, 0), (10, 1)]), targets=[Target(45, "target 45 s")]))
    assert page.named("line", "target") == []
    assert page.said("text", "target") == ["target 45 s ↑"]
    assert "40" not in heights(page)
    far = drawn(lanes(Lane("a", ["20 s"], [Bar("solid", 0, 20)]), target=Target(900, "target 900 s")))
    assert far.named("line", "target") == []
    assert far.said("text", "target") == ["target 900 s →"]


def test_the_number_stands_at_its_point() -> None:
    page = drawn(plot(Series("", [(0, 0), (5, 40), (10, 10)]), notes=[Note((5, 40), "40 s", is_ringed=True)]))
    (ring,) = page.named("circle", "ring")
    (note,) = page.named("text", "note")
    assert (percent(ring["cx"]), percent(ring["cy"])) == marks(page, "dots")[1]
    assert (note["x"], note["y"]) == (ring["cx"], ring["cy"])
    assert page.said("text", "note") == ["40 s"]


def test_series_differ_in_shape_not_only_in_colour() -> None:
    page = drawn(plot(*(Series(look, [(0, 1), (1, 2)], look) for look in LOOKS)))
    assert len({found["d"] for found in page.named("path", "marks")}) == len(LOOKS)
    assert page.said("span", "series") == [*LOOKS]


def test_many_points_are_thinned_and_neither_extremes_nor_rare_marks_are_lost() -> None:
    many = Series("done", [(float(at), 400.0 if at == 31_234 else 10.0 + at % 7) for at in range(60_000)])
    few = Series("failed", [(float(at * 1_000), 20.0) for at in range(50)], "triangles")
    page = drawn(plot(many, few))
    assert len(marks(page, "dots")) <= 1_500
    assert min(y for _, y in marks(page, "dots")) == heights(page)["400"]
    assert len(marks(page, "triangles")) == 50


@pytest.mark.parametrize(
    "points",
    [[(0, 0)], [(3, 7)], [(1, 5), (2, 5)], [(4, 0), (4, 9)], [(0, 1e15), (1, -1e15)], [(0, 1e-12), (1, 0)]],
    ids=["zero", "one", "all equal", "one moment", "huge", "tiny"],
)
def test_odd_data_make_a_sound_drawing(points: list[Point]) -> None:
    note = [Note(points[0], "here")]
    page = drawn(plot(Series("", points), notes=note, targets=[Target(5, "target")], bands=[Band(0, 0, "run")]))
    assert has_sound_numbers(page)
    assert all(0 <= x <= 100 for x, _ in marks(page, "dots"))


def test_numbers_of_ticks_do_not_touch() -> None:
    levels = [(float(at), 1.0) for at in range(1, 65)]
    scale = plot(Series("", levels), x=Axis("Load", ticks=[at for at, _ in levels])).x_scale
    places = [scale(tick) for tick in scale.ticks]
    assert len(places) > 5
    assert min(after - before for before, after in itertools.pairwise(places)) > 2.6


def test_bands_are_named_where_there_is_room() -> None:
    bands = [Band(0, 50, "cold"), Band(50, 50.5, "warm"), Band(50.5, 100, "long")]
    page = drawn(plot(Series("", [(0, 1), (100, 2)]), bands=bands))
    assert page.said("text", "name") == ["cold", "long"]
    assert len(page.named("rect", "band")) == 2


def test_parts_of_a_stack_follow_each_other_in_proportion() -> None:
    page = drawn(lanes(Lane("all", ["7 s"], stacked(FILLS, [4.0, 2.0, 1.0])), keys=KEYS))
    ((queue, long),) = bars(page, "empty")
    ((work, half),) = bars(page, "solid")
    ((fetch, short),) = bars(page, "striped")
    assert work == pytest.approx(queue + long, abs=0.02)
    assert fetch == pytest.approx(work + half, abs=0.02)
    assert [long / half, half / short] == pytest.approx([2, 2], abs=0.05)
    assert page.said("span", "note") == ["7 s"]
    assert page.said("span", "series") == [*KEYS]
    assert len(page.named("line", "stripes")) == 2


def test_bars_of_a_group_begin_at_zero_and_lie_below_each_other() -> None:
    shown = [Bar("solid", 0, 8.0), Bar("striped", 0, 2.0, 1)]
    page = drawn(lanes(Lane("node", ["8 s", "2 s"], shown)))
    (long,), (short,) = bars(page, "solid"), bars(page, "striped")
    assert (long[0], short[0]) == (0, 0)
    assert long[1] / short[1] == pytest.approx(4, abs=0.05)
    first, second = (float(found["y"]) for found in page.named("rect", "bar"))
    assert first + 11 <= second
    assert page.said("span", "note") == ["8 s", "2 s"]


@pytest.mark.parametrize("values", [[None, 0.0, 0.0], [None, 1e15, 1e-9], [5.0, None, None]])
def test_odd_bars_make_a_sound_drawing(values: list[float | None]) -> None:
    shown = lanes(Lane("", [""], stacked(FILLS, values)), keys=KEYS, target=Target(3, "target"))
    page = drawn(shown)
    assert len(bars(page, "empty")) == bool(values[0])
    assert not re.search(
        r"nan|inf|\de[+-]?\d", " ".join(value for _, found in page.elements for value in found.values())
    )


def test_a_target_is_drawn_across_the_lanes() -> None:
    shown = [
        Lane(name, [""], [Bar("solid", min(0, at), max(0, at))]) for name, at in (("a", 10), ("b", 20), ("early", -5))
    ]
    page = drawn(lanes(*shown, target=Target(10.0, "target 10 s")))
    start, length = bars(page, "solid")[0]
    assert [percent(found["x1"]) for found in page.named("line", "target")] == pytest.approx([start + length] * 3)


def test_changes_lie_on_their_side_of_no_change() -> None:
    page = drawn(
        lanes(
            Lane("p95", ["+20 %"], interval=Interval(20, 10, 40, "triangles", True)),
            Lane("rate", ["-10 %"], interval=Interval(-10, -20, 5, "squares", False)),
            Lane("p99", ["+10 %"], interval=Interval(10, -90, 9000, "crosses", False)),
            target=Target(0, "no change"),
        )
    )
    zero = percent(page.named("line", "target")[0]["x1"])
    ((worse, _),), ((noise, _),) = marks(page, "triangles"), marks(page, "squares")
    assert worse - zero == pytest.approx(2 * (zero - noise), rel=0.02)
    sure, unsure, vague = ((percent(at["x1"]), percent(at["x2"])) for at in page.named("line") if "class" not in at)
    assert zero < sure[0]
    assert unsure[0] < zero < unsure[1]
    assert vague == (0, 100)  # an interval of too few values does not stretch the axis
    assert len(page.named("g", "dim")) == 2
