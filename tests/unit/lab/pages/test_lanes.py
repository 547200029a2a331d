"""Bars, changes and stages: lengths and places that say what the numbers say."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.pages.bars import Bar, Bars, Fill, Part
from comfyui_agent.lab.pages.changes import Change, Changes
from comfyui_agent.lab.pages.shapes import NARROW, WIDE
from comfyui_agent.lab.pages.stages import StageMark, Stages
from unit.lab.pages.made import Parsed, places, svg

PARTS = [Part("Queue", Fill.EMPTY), Part("Execution", Fill.SOLID), Part("Transfer", Fill.STRIPED)]


def bars(*shown: Bar, **facts: object) -> Bars:
    return Bars("It waits", "It shows.", "Duration (s)", PARTS, shown, **facts)  # type: ignore[arg-type]


def rectangles(page: Parsed, kind: str) -> list[tuple[float, float]]:
    """Where the bars of a filling begin and how long they are; the first is that of the key."""
    return [(float(found["x"]), float(found["width"])) for found in page.named("rect", kind)][1:]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_parts_of_a_stack_follow_each_other_in_proportion(width: int) -> None:
    page = Parsed(svg(bars(Bar("all", [4.0, 2.0, 1.0], "7 s"), is_stacked=True), width))
    ((queue, long),) = rectangles(page, "empty")
    ((work, half),) = rectangles(page, "solid")
    ((fetch, short),) = rectangles(page, "striped")
    assert work == pytest.approx(queue + long, abs=0.2)
    assert fetch == pytest.approx(work + half, abs=0.2)
    assert [long / half, half / short] == pytest.approx([2, 2], abs=0.05)
    assert page.said("text", "note") == ["7 s"]
    assert fetch + short <= width


def test_bars_of_a_pair_begin_at_zero_and_lie_below_each_other() -> None:
    page = Parsed(svg(bars(Bar("node", [8.0, 2.0, 4.0], "8 s\n2 s\n4 s")), WIDE))
    starts, lengths = zip(*(rectangles(page, kind)[0] for kind in ("empty", "solid", "striped")), strict=True)
    assert len(set(starts)) == 1
    assert [lengths[0] / lengths[1], lengths[0] / lengths[2]] == pytest.approx([4, 2], abs=0.05)
    heights = [float(found["y"]) for found in page.named("rect", "bar")[-3:]]
    assert heights == sorted(heights)
    assert len(set(heights)) == 3
    assert page.said("text", "note") == ["8 s", "2 s", "4 s"]


def test_what_was_not_measured_has_no_bar_but_its_dash() -> None:
    page = Parsed(svg(bars(Bar("node", [None, 2.0, 0.0], "-\n2 s\n0 s")), WIDE))
    assert [len(rectangles(page, kind)) for kind in ("empty", "solid", "striped")] == [0, 1, 0]
    assert page.said("text", "note") == ["-", "2 s", "0 s"]


def test_fillings_can_be_told_apart_without_colour() -> None:
    page = Parsed(svg(bars(Bar("all", [4.0, 2.0, 20.0], ""), is_stacked=True), WIDE))
    assert len(page.named("path", "stripes")) == 2
    assert page.said("text", "legend") == ["Queue", "Execution", "Transfer"]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_long_names_are_cut_to_their_room(width: int) -> None:
    page = Parsed(svg(bars(Bar("n" * 500, [1.0, 1.0, 1.0]), Bar("short", [1.0])), width))
    long, short = page.said("text", "lane")
    assert long.endswith("…")
    assert len(long) < 60
    assert short == "short"


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("shown", [[], [Bar("a", [])], [Bar("a", [0.0, 0.0, 0.0])], [Bar("", [None, 1e15, 1e-9])]])
def test_odd_bars_make_a_sound_drawing(shown: list[Bar], width: int) -> None:
    for is_stacked in (True, False):
        drawn = svg(bars(*shown, is_stacked=is_stacked, target=3.0, target_text="target"), width)
        assert Parsed(drawn).named("svg")
        assert all(part not in drawn for part in ("nan", "inf", "e+"))


def test_a_target_is_drawn_across_the_lanes() -> None:
    page = Parsed(svg(bars(Bar("a", [5.0, 10.0, 20.0]), target=10.0, target_text="target 10 s"), WIDE))
    ((x, _),) = places(page.named("path", "target")[0]["d"])
    start, length = rectangles(page, "solid")[0]
    assert x == pytest.approx(start + length, abs=0.2)


def test_a_target_far_off_is_named_at_the_edge() -> None:
    page = Parsed(svg(bars(Bar("a", [5.0, 10.0, 20.0]), target=900.0, target_text="target 900 s"), WIDE))
    assert page.named("path", "target") == []
    assert page.said("text", "target") == ["target 900 s →"]


def change(name: str, value: float, low: float | None, high: float | None, verdict: str) -> Change:
    return Change(name, value, low, high, verdict, f"{value:+.0%}")


def zero_of(page: Parsed) -> float:
    return places(page.named("path", "zero")[0]["d"])[0][0]


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_changes_lie_on_their_side_of_no_change(width: int) -> None:
    shown = [change("p95", 0.2, 0.1, 0.4, "worse"), change("rate", -0.1, -0.2, 0.05, "noise")]
    page = Parsed(svg(Changes("t", "s", shown), width))
    zero = zero_of(page)
    ((worse, _),) = places(page.named("path", "large triangles")[0]["d"])
    ((noise, _),) = places(page.named("path", "large squares")[0]["d"])
    assert noise < zero < worse
    assert worse - zero == pytest.approx(2 * (zero - noise), rel=0.02)
    sure, unsure = (places(found["d"]) for found in page.named("path", "whisker"))
    assert min(x for x, _ in sure) > zero
    assert min(x for x, _ in unsure) < zero < max(float(x) for x, _ in unsure)
    assert page.said("text", "note") == ["+20%", "-10%"]


def test_an_interval_that_says_nothing_does_not_stretch_the_axis() -> None:
    shown = [change("p95", 0.2, 0.1, 0.4, "worse"), change("p99", 0.1, -0.9, 90.0, "too few")]
    alone = Parsed(svg(Changes("t", "s", shown[:1]), WIDE))
    both = Parsed(svg(Changes("t", "s", shown), WIDE))
    assert zero_of(alone) == zero_of(both)


def test_no_changes_make_a_sound_drawing() -> None:
    assert "Nothing was measured." in Parsed(svg(Changes("t", "s", []), WIDE)).whole
    assert Parsed(svg(Changes("t", "s", [change("a", 0, None, None, "noise")]), NARROW)).named("svg")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_stages_lie_at_their_seconds(width: int) -> None:
    stages = [StageMark("fault", 0.0), StageMark("alert", 10.0), StageMark("recovered", 40.0)]
    page = Parsed(svg(Stages("t", "s", stages, target=60.0), width))
    spots = [places(found["d"])[0][0] for found in page.named("path", "marks")]
    ((target, _),) = places(page.named("path", "target")[0]["d"])
    assert spots[2] - spots[0] == pytest.approx(4 * (spots[1] - spots[0]), abs=0.5)
    assert target - spots[0] == pytest.approx(6 * (spots[1] - spots[0]), abs=0.8)
    assert page.said("text", "note") == ["0 s", "10.0 s", "40.0 s"]
    assert page.said("text", "lane") == ["fault", "alert", "recovered"]


def test_what_was_noted_before_the_fault_lies_before_it() -> None:
    page = Parsed(svg(Stages("t", "s", [StageMark("warm", -5.0), StageMark("fault", 0.0)]), WIDE))
    before, fault = (places(found["d"])[0][0] for found in page.named("path", "marks"))
    assert before < fault
