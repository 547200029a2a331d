"""Places of a grid by numbers and back, for the picture and for the screen alike."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.domain.grid_layout import CellPlace, GridLayout, axis_label, layout_by_axes, sheet_place

NAMES = ("model", "seed", "cfg", "steps")


def axes_of(*lengths: int) -> list[Axis]:
    return [Axis(name, (name,), tuple(range(length))) for name, length in zip(NAMES, lengths, strict=False)]


def combined(*lengths: int, mode: Mode = Mode.MATRIX) -> Combinations:
    return Combinations(axes_of(*lengths), mode)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_a_place_and_its_number_lead_to_each_other(lengths: list[int], data: st.DataObject) -> None:
    combinations = combined(*lengths)
    names = NAMES[: len(lengths)]
    x = data.draw(st.sampled_from(names))
    y = data.draw(st.sampled_from(["", *(name for name in names if name != x)]))
    layout = GridLayout(combinations, x, y)
    every = product(range(layout.pages), range(len(layout.rows)), range(len(layout.columns)))
    places = [CellPlace(*each) for each in every]
    assert [layout.place(layout.index(place)) for place in places] == places
    assert sorted(layout.index(place) for place in places) == list(range(prod(lengths)))
    for index in range(prod(lengths)):
        place, values = layout.place(index), combinations.values_at(index)
        assert layout.columns[place.column] == f"{x} = {values[x]}"
        assert layout.rows[place.row] == (f"{y} = {values[y]}" if y else "")
        said = [f"{axis.name} = {values[axis.name]}" for axis in layout.others]
        assert layout.title(place.page) == ", ".join(said)


def test_pages_go_by_the_values_of_the_other_axes() -> None:
    layout = GridLayout(combined(2, 3, 4, 5), "steps", "cfg")
    assert [axis.name for axis in layout.others] == ["model", "seed"]
    assert layout.pages == 6
    assert [layout.chosen(page) for page in range(6)] == list(product(range(2), range(3)))
    assert [layout.page(layout.chosen(page)) for page in range(6)] == list(range(6))
    assert layout.corner == "cfg \\ steps"


def test_what_is_no_combination_has_no_place() -> None:
    layout = GridLayout(combined(2, 3), "seed", "model")
    assert [layout.has(index) for index in (-1, 0, 5, 6)] == [False, True, True, False]


def test_a_page_of_the_usual_layout_is_one_stretch_of_numbers() -> None:
    layout = GridLayout(combined(2, 3, 4), "cfg", "seed")
    for page in range(layout.pages):
        cells = [layout.index(CellPlace(page, row, column)) for row in range(3) for column in range(4)]
        assert cells == list(range(12 * page, 12 * page + 12))


def test_a_million_results_cost_no_more_than_the_page_that_is_looked_at() -> None:
    layout = GridLayout(combined(1000, 500, 2), "cfg", "model")
    assert layout.pages == 500
    assert layout.place(999_999) == CellPlace(499, 999, 1)
    assert layout.index(CellPlace(499, 999, 1)) == 999_999
    assert layout.title(499) == "seed = 499"


def test_the_last_axes_that_vary_go_across_and_down_unless_people_say() -> None:
    for lengths, wish, across, down in [
        ((2, 3), {}, "seed", "model"),
        ((2, 3, 4), {}, "cfg", "seed"),
        ((2, 3, 1, 4), {}, "steps", "seed"),
        ((2, 3, 4), {"x": "model"}, "model", "cfg"),
        ((2, 3, 4), {"y": "cfg"}, "seed", "cfg"),
        ((2, 3, 4), {"pages": "cfg"}, "seed", "model"),
        ((2, 3, 4), {"x": "seed", "y": "model"}, "seed", "model"),
        ((2, 3), {"x": "model", "pages": "seed"}, "model", ""),
        ((2, 3), {"pages": "model"}, "seed", ""),
        ((3,), {"x": "model"}, "model", ""),
        ((3, 1), {"x": "seed"}, "seed", "model"),
    ]:
        layout = layout_by_axes(combined(*lengths), **wish)
        assert layout is not None, (lengths, wish, across, down)
        assert (layout.x, layout.y) == (across, down), (lengths, wish, across, down)


def test_one_axis_alone_is_not_laid_out() -> None:
    for lengths in [(1,), (5,), (1, 5, 1)]:
        assert layout_by_axes(combined(*lengths)) is None, lengths


def test_axes_in_step_are_not_laid_out_even_if_some_are_named() -> None:
    assert layout_by_axes(combined(3, 3, mode=Mode.LINEAR), "seed", "model") is None


@given(st.integers(1, 1_000))
def test_a_sheet_is_about_square_and_has_its_results_in_their_order(count: int) -> None:
    places = [sheet_place(number, count) for number in range(count)]
    assert places == sorted(set(places))
    rows, columns = (1 + max(place[at] for place in places) for at in (1, 2))
    assert {place.page for place in places} == {0}
    assert columns - 1 <= rows <= columns
    assert [place.column for place in places[:columns]] == list(range(columns))


def test_a_label_says_a_truth_as_people_write_it() -> None:
    axis = Axis("tiled", (), (True, "True", 0.5))
    assert [axis_label(axis, index) for index in range(3)] == ["tiled = true", "tiled = True", "tiled = 0.5"]
