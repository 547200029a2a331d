"""Plots: every point where it belongs, the target drawn in, the number at the point that matters."""

from __future__ import annotations

import itertools
import re

import pytest

from comfyui_agent.lab.pages import labels
from comfyui_agent.lab.pages.labels import Area, Labels, Spot, covered
from comfyui_agent.lab.pages.marks import LOOKS, Look, Series
from comfyui_agent.lab.pages.plots import Axis, Band, Note, Plot, Target
from comfyui_agent.lab.pages.shapes import NARROW, WIDE, Point
from unit.lab.pages.made import Parsed, places, svg


def plot(*series: Series, **facts: object) -> Plot:
    about = {"title": "It is fast", "sentence": "It shows.", "x": Axis("Time (s)"), "y": Axis("Duration (s)")}
    return Plot(**{**about, "series": series, **facts})  # type: ignore[arg-type]


def drawn(shown: Plot, width: int = WIDE) -> Parsed:
    return Parsed(svg(shown, width))


def heights(page: Parsed) -> dict[str, float]:
    """The y of each line at a tick, by its number."""
    ticks = [
        (found, text)
        for (tag, found), text in zip(page.elements, page.texts, strict=True)
        if tag == "text" and found.get("class") == "tick" and found.get("text-anchor") == "end"
    ]
    return {text: float(found["y"]) - 4 for found, text in ticks}


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_point_lies_where_the_axes_say(width: int) -> None:
    page = drawn(plot(Series("", [(0, 0), (5, 20), (10, 40)])), width)
    (path,) = [found["d"] for found in page.named("path", "marks dots")]
    (first, middle, last) = places(path)
    lines = heights(page)
    assert [first[1], middle[1], last[1]] == [lines["0"], lines["20"], lines["40"]]
    assert middle[0] == pytest.approx((first[0] + last[0]) / 2, abs=0.1)
    assert last[0] <= width


def test_the_target_is_a_line_at_its_height_with_its_name() -> None:
    page = drawn(plot(Series("", [(0, 0), (10, 40)]), targets=[Target(20, "target 20 s")]))
    ((_, height),) = places(page.named("path", "target")[0]["d"])
    assert height == heights(page)["20"]
    assert page.said("text", "target") == ["target 20 s"]


def test_a_target_far_off_is_named_at_the_edge_and_flattens_nothing() -> None:
    page = drawn(plot(Series("", [(0, 0), (10, 1)]), targets=[Target(45, "target 45 s")]))
    assert page.named("path", "target") == []
    assert page.said("text", "target") == ["target 45 s ↑"]
    assert "1.0" in heights(page)
    assert "40" not in heights(page)


def test_a_target_above_all_points_is_within_the_axis() -> None:
    page = drawn(plot(Series("", [(0, 0), (10, 30)]), targets=[Target(45, "target 45 s")]))
    ((_, height),) = places(page.named("path", "target")[0]["d"])
    assert heights(page)["50"] < height < heights(page)["40"]


def test_the_number_stands_at_its_point() -> None:
    page = drawn(plot(Series("", [(0, 0), (5, 40), (10, 10)]), notes=[Note((5, 40), "40 s", is_ringed=True)]))
    (ring,) = page.named("circle", "ring")
    point = places(page.named("path", "marks dots")[0]["d"])[1]
    assert (float(ring["cx"]), float(ring["cy"])) == point
    (note,) = page.named("text", "note")
    assert abs(float(note["x"]) - point[0]) + abs(float(note["y"]) - point[1]) < 40
    assert page.said("text", "note") == ["40 s"]


def test_units_and_what_is_shown_are_said_for_all() -> None:
    page = drawn(plot(Series("", [(0, 1)])))
    assert page.said("text", "axis") == ["Duration (s)", "Time (s)"]
    assert [page.said("title"), page.said("desc")] == [["It is fast"], ["It shows."]]
    assert page.named("svg")[0]["role"] == "img"


def test_series_differ_in_shape_not_only_in_colour() -> None:
    shown = [Series(look.value, [(0, 1), (1, 2)], look) for look in LOOKS]
    page = drawn(plot(*shown))
    shapes = [re.sub(r"M-?[\d.]+ -?[\d.]+", "M", found["d"]) for found in page.named("path", "marks")[-4:]]
    assert len(set(shapes)) == len(LOOKS)
    assert page.said("text", "legend") == [look.value for look in LOOKS]


def test_many_points_are_thinned_and_the_longest_is_still_there() -> None:
    points = [(float(at), 400.0 if at == 31_234 else 10.0 + at % 7) for at in range(60_000)]
    page = drawn(plot(Series("", points, has_line=False)))
    marks = places(page.named("path", "marks dots")[0]["d"])
    assert len(marks) <= 1_500
    assert min(y for _, y in marks) == heights(page)["400"]


def test_rare_marks_are_not_thinned_away_by_many_others() -> None:
    many = Series("completed", [(float(at), 10.0) for at in range(60_000)], has_line=False)
    few = Series("failed", [(float(at * 1_000), 20.0) for at in range(50)], Look.TRIANGLES, has_line=False)
    page = drawn(plot(many, few))
    assert len(places(page.named("path", "marks triangles")[-1]["d"])) == 50


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize(
    "points",
    [[], [(0, 0)], [(3, 7)], [(1, 5), (2, 5)], [(4, 0), (4, 9)], [(0, 1e15), (1, -1e15)], [(0, 1e-12), (1, 0)]],
    ids=["none", "zero", "one", "all equal", "one moment", "huge", "tiny"],
)
def test_odd_data_make_a_sound_drawing(points: list[Point], width: int) -> None:
    note = [Note(points[0], "here")] if points else []
    shown = plot(Series("", points), notes=note, targets=[Target(5, "target")], bands=[Band(0, 0, "run")])
    text = svg(shown, width)
    assert not re.search(r"nan|inf|e[+-]?\d", " ".join(re.findall(r'="([^"]*)"', text)))
    page = Parsed(text)
    if not points:
        assert page.said("text", "axis") == ["Nothing was measured."]
    for found in page.named("path", "marks"):
        assert all(0 <= x <= width for x, _ in places(found["d"]))


def test_a_long_path_is_written_whole() -> None:
    page = drawn(plot(Series("", [(float(at), float(at % 2)) for at in range(1_200)], has_marks=False)))
    path = page.named("path", "line dots")[0]["d"]
    assert re.fullmatch(r"M[\d.]+ [\d.]+(L[\d.]+ [\d.]+){1199}", path)


def test_numbers_of_ticks_do_not_touch() -> None:
    levels = [(float(at), 1.0) for at in range(1, 65)]
    page = drawn(plot(Series("", levels), x=Axis("Load", ticks=[at for at, _ in levels])), NARROW)
    spots = [
        (float(found["x"]), len(text) * 6.0)
        for (tag, found), text in zip(page.elements, page.texts, strict=True)
        if tag == "text" and found.get("class") == "tick" and found.get("text-anchor") == "middle"
    ]
    assert len(spots) > 5
    assert all(right - left >= (one + other) / 2 for (left, one), (right, other) in itertools.pairwise(spots))


def test_bands_are_named_where_there_is_room() -> None:
    bands = [Band(0, 50, "cold"), Band(50, 50.5, "warm"), Band(50.5, 100, "long")]
    page = drawn(plot(Series("", [(0, 1), (100, 2)]), bands=bands))
    assert page.said("text", "name") == ["cold", "long"]
    assert len(page.named("rect", "band")) == 2


def test_a_text_is_put_where_it_covers_no_point_and_no_other_text() -> None:
    field = Area(0, 0, 300, 200)
    texts = Labels(field, [(150, 88)])
    first = texts.put("note", "12.2 s", labels.beside(150, 100, 10))
    second = texts.put("note", "12.2 s", labels.beside(150, 100, 10))
    boxes = [covered("12.2 s", Spot(at.x, at.y, at.anchor)) for at in (first, second)]
    assert not any(box.has((150, 88)) for box in boxes)
    assert not boxes[0].overlaps(boxes[1])


def test_a_number_does_not_stand_on_the_line_between_points() -> None:
    shown = plot(Series("", [(0, 0), (50, 10), (51, 40), (100, 40)], has_marks=False), notes=[Note((50, 10), "10 s")])
    page = drawn(shown)
    (note,) = page.named("text", "note")
    box = covered("10 s", Spot(float(note["x"]), float(note["y"]), note["text-anchor"]))
    (way,) = page.named("path", "line")
    points = [tuple(map(float, at.split())) for at in re.findall(r"[\d.]+ [\d.]+", way["d"])]
    line = [
        (x + (to_x - x) * part / 100, y + (to_y - y) * part / 100)
        for (x, y), (to_x, to_y) in itertools.pairwise(points)
        for part in range(101)
    ]
    assert not any(box.has(point) for point in line)


def test_a_text_at_the_edge_stays_inside() -> None:
    text = Labels(Area(0, 0, 300, 200), []).put("note", "a long number", labels.beside(298, 100, 10))
    assert covered("a long number", Spot(text.x, text.y, text.anchor)).right <= 300
