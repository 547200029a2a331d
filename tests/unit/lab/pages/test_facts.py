"""Reading reports that may be old or wrong, markup that is safe by default, and axes of time."""

from __future__ import annotations

import pytest

from comfyui_agent.lab.pages import facts, time_axis
from comfyui_agent.lab.pages.markup import Html, element, joined, place


@pytest.mark.parametrize("value", [None, True, "3", [], {}, float("nan"), float("inf"), 1e308, 10**400])
def test_what_is_no_quantity_is_no_number(value: object) -> None:
    assert facts.number(value) is None


def test_numbers_lists_and_parts_are_taken_as_they_are() -> None:
    assert [facts.number(3), facts.number(-2.5), facts.amount(4.0), facts.amount(None)] == [3, -2.5, 4, 0]
    assert [facts.rows([{"a": 1}, 3, None]), facts.rows("abc"), facts.rows(None)] == [[{"a": 1}], [], []]
    assert [facts.part({"a": 1}), facts.part([1])] == [{"a": 1}, {}]
    assert facts.texts(["a", "", None, 3, {"b": 1}]) == ["a", "3"]


def test_texts_are_escaped_between_tags_and_in_quotes_and_markup_is_not() -> None:
    assert element("p", "a < b", Html("<b>c</b>"), title="\"'>") == ('<p title="&quot;&#x27;&gt;">a &lt; b<b>c</b></p>')
    assert isinstance(joined("<", Html("<br>")), Html)


def test_attributes_are_named_as_in_markup_and_none_leaves_one_out() -> None:
    assert element("text", class_="note", text_anchor="end", x=1.25, y=None) == (
        '<text class="note" text-anchor="end" x="1.2"></text>'
    )
    assert [place(-0.01), place(3.0), place(-2.36)] == ["0", "3", "-2.4"]


@pytest.mark.parametrize(
    ("longest", "label", "at_an_hour"),
    [(300, "Time (s)", 3600.0), (301, "Time (min)", 60.0), (20_000, "Time (h)", 1.0)],
)
def test_time_is_in_the_unit_that_gives_round_numbers(longest: float, label: str, at_an_hour: float) -> None:
    time = time_axis.over(longest)
    assert time.axis("Time").label == label
    assert time.points([(3600.0, 7.0)]) == [(at_an_hour, 7.0)]
