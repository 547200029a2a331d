"""Places of a grid by numbers and back, for the picture and for the screen alike."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.batches.grid_layout import GridLayout, Place, layout_of
from comfyui_agent.batches.sweeps import GridWish
from comfyui_agent.domain.batches import Batch, BatchKind, BatchStatus
from comfyui_agent.domain.combinations import Axis, Combinations, Mode

NAMES = ("model", "seed", "cfg", "steps")


def axes_of(*lengths: int) -> list[Axis]:
    return [Axis(name, (name,), tuple(range(length))) for name, length in zip(NAMES, lengths, strict=False)]


def combined(*lengths: int) -> Combinations:
    return Combinations(axes_of(*lengths), Mode.MATRIX)


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_a_place_and_its_number_lead_to_each_other(lengths: list[int], data: st.DataObject) -> None:
    combinations = combined(*lengths)
    names = NAMES[: len(lengths)]
    x = data.draw(st.sampled_from(names))
    y = data.draw(st.sampled_from(["", *(name for name in names if name != x)]))
    layout = GridLayout(combinations, x, y)
    every = product(range(layout.pages), range(len(layout.rows)), range(len(layout.columns)))
    places = [Place(*each) for each in every]
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
        cells = [layout.index(Place(page, row, column)) for row in range(3) for column in range(4)]
        assert cells == list(range(12 * page, 12 * page + 12))


def test_a_million_results_cost_no_more_than_the_page_that_is_looked_at() -> None:
    layout = GridLayout(combined(1000, 500, 2), "cfg", "model")
    assert layout.pages == 500
    assert layout.place(999_999) == Place(499, 999, 1)
    assert layout.index(Place(499, 999, 1)) == 999_999
    assert layout.title(499) == "seed = 499"


def test_axes_that_were_written_down_by_hand_are_a_contact_sheet() -> None:
    for axes in (7, [], [7], [{"name": "seed"}], [{"name": "seed", "places": [], "values": []}]):
        batch = Batch(
            *("fox_1", "fox", BatchKind.SWEEP, BatchStatus.ACTIVE, 1, "", None, None, None, False, None, False),
            metadata={"axes": axes, "mode": "matrix"},
        )
        assert layout_of(batch, GridWish()) is None
