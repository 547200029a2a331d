"""Which values go together: each with each, or in step."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.nodes.core.combination_engine import cartesian, linear_zip

LISTS = st.lists(st.lists(st.integers(), min_size=1, max_size=4), min_size=1, max_size=4)


def test_each_goes_with_each_the_last_fastest() -> None:
    assert cartesian([[1, 2], ["a", "b"]]) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]


def test_they_go_in_step_and_one_value_alone_stays() -> None:
    assert linear_zip([[1, 2, 3], ["a", "b", "c"], [True]]) == [(1, "a", True), (2, "b", True), (3, "c", True)]
    assert linear_zip([["x"], [1, 2]]) == [("x", 1), ("x", 2)]


@pytest.mark.parametrize("combine", [cartesian, linear_zip])
def test_a_parameter_may_be_given_with_its_values_in_it(combine: Any) -> None:
    parameters = [{"name": "seed", "parsed_values": [1, 2]}, {"name": "cfg", "parsed_values": (7.0, 8.0)}]
    assert combine(parameters) == combine([[1, 2], [7.0, 8.0]])


@given(LISTS)
def test_the_product_is_the_one_of_mathematics(lists: list[list[int]]) -> None:
    assert cartesian(lists) == list(itertools.product(*lists))


@given(LISTS)
def test_in_step_is_a_zip_or_is_refused(lists: list[list[int]]) -> None:
    lengths = {len(values) for values in lists} - {1}
    if len(lengths) > 1:
        with pytest.raises(ValueError, match="values and"):
            linear_zip(lists)
        return
    length = max(len(values) for values in lists)
    stretched = [values * length if len(values) == 1 else values for values in lists]
    assert linear_zip(lists) == list(zip(*stretched, strict=True))


@pytest.mark.parametrize("combine", [cartesian, linear_zip])
@pytest.mark.parametrize("lists", [[], [[1], []], [[]]])
def test_nothing_makes_no_combinations(combine: Any, lists: list[list[int]]) -> None:
    with pytest.raises(ValueError, match=r"nothing to combine|has no values"):
        combine(lists)


def test_unequal_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="list 1 has 3 values and list 2 2"):
        linear_zip([[1, 2, 3], [1, 2]])


def test_far_too_many_are_refused_before_they_are_made() -> None:
    with pytest.raises(ValueError, match="1,000,000 is the most"):
        cartesian([list(range(1000))] * 5)
