"""Axes make each combination once: the product with the last axis fastest, or all in step."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.combinations import MOST, Axis, BadAxes, Combinations, Mode, combine_lists

PAGE = Path(__file__).parents[3] / "docs/values.md"
LISTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=4)


def axis(name: str, *values: Any, places: tuple[str, ...] | None = None) -> Axis:
    return Axis(name, (name,) if places is None else places, values)


def axes_of(lists: Sequence[Sequence[Any]]) -> list[Axis]:
    return [axis(f"{number}.x", *values) for number, values in enumerate(lists)]


def error_of(axes: Sequence[Axis], mode: Mode = Mode.MATRIX) -> str:
    with pytest.raises(BadAxes) as caught:
        Combinations(axes, mode)
    return str(caught.value)


# Matrix


@given(LISTS)
def test_a_matrix_is_the_product_in_its_order(lists: list[list[int]]) -> None:
    found = Combinations(axes_of(lists), Mode.MATRIX)
    wanted = list(itertools.product(*(range(len(values)) for values in lists)))
    assert len(found) == len(wanted)
    assert list(found) == wanted
    assert [found[index] for index in range(len(found))] == wanted
    assert len(set(found)) == len(found)
    assert combine_lists(lists, Mode.MATRIX) == list(itertools.product(*lists))


def test_the_last_axis_goes_fastest() -> None:
    found = Combinations([axis("a", 1, 2), axis("b", "x", "y", "z")], Mode.MATRIX)
    assert [found.values_at(index) for index in (0, 1, 3)] == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
    ]


# Linear


@given(st.integers(1, 6), st.lists(st.booleans(), min_size=1, max_size=4))
def test_linear_walks_in_step_and_single_values_stay(length: int, stays: list[bool]) -> None:
    lists = [[number] if stay else list(range(length)) for number, stay in enumerate(stays)]
    found = Combinations(axes_of(lists), Mode.LINEAR)
    assert len(found) == (1 if all(stays) else length)
    assert list(found) == [tuple(0 if stay else index for stay in stays) for index in range(len(found))]
    assert combine_lists(lists, Mode.LINEAR) == [
        tuple(number if stay else index for number, stay in enumerate(stays)) for index in range(len(found))
    ]


@pytest.mark.parametrize(
    ("lengths", "names"), [((3, 4), ("0.x has 3", "1.x 4")), ((1, 2, 1, 5, 2), ("1.x has 2", "3.x 5"))]
)
def test_axes_that_are_not_in_step_are_named_with_their_lengths(
    lengths: tuple[int, ...], names: tuple[str, str]
) -> None:
    message = error_of(axes_of([range(length) for length in lengths]), Mode.LINEAR)
    assert all(name in message for name in names)


# One combination


def test_counting_is_that_of_a_list() -> None:
    for mode in list(Mode):
        found = Combinations([axis("a", 1, 2, 3), axis("b", "x")], mode)
        assert found[-1] == found[2] == (2, 0), mode
        for index in (3, -4):
            with pytest.raises(IndexError):
                found[index]
            with pytest.raises(IndexError):
                found.values_at(index)


def test_a_mode_may_be_its_word() -> None:
    axes = [axis("a", 1, 2), axis("b", 1, 2)]
    assert len(Combinations(axes, "linear")) == 2  # type: ignore[arg-type]
    assert len(Combinations(axes, "matrix")) == 4  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="diagonal"):
        Combinations(axes, "diagonal")  # type: ignore[arg-type]


# How many


def test_a_million_combinations_take_no_memory() -> None:
    axes = [axis("a", *range(1000)), axis("b", *range(1000))]
    tracemalloc.start()
    try:
        found = Combinations(axes, Mode.MATRIX)
        assert len(found) == MOST
        assert found.values_at(999_999) == {"a": 999, "b": 999}
        assert next(iter(found)) == (0, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_more_than_a_million_are_too_many() -> None:
    assert "make 1,001,000 combinations" in error_of([axis("a", *range(1000)), axis("b", *range(1001))])
    assert "make 1,000,001 combinations" in error_of([axis("a", *range(MOST + 1))], Mode.LINEAR)
    assert "make far too many combinations" in error_of(axes_of([range(10)] * 5000))
    assert " 7.x (10) make" in error_of(axes_of([range(10)] * 8))
    assert " 7.x (10) and 1 more make" in error_of(axes_of([range(10)] * 9))


# What makes no sense


def test_every_error_is_on_the_page() -> None:
    for axes, mode in [
        ([], Mode.MATRIX),
        ([axis("3.seed")], Mode.MATRIX),
        ([axis("3.seed", 1), axis("3.seed", 2, places=())], Mode.MATRIX),
        ([axis("seed", 1, places=("3.seed",)), axis("3.seed", 2)], Mode.MATRIX),
        ([axis("3.seed", 1, 2, 3), axis("3.cfg", 1, 2, 3, 4)], Mode.LINEAR),
        ([axis("3.seed", *range(2000)), axis("3.cfg", *range(1000))], Mode.MATRIX),
    ]:
        assert f"| {error_of(axes, mode)} |" in PAGE.read_text(encoding="utf-8"), (axes, mode)


def test_everything_is_checked_in_each_mode() -> None:
    for mode in list(Mode):
        assert "nothing to combine" in error_of([], mode), mode
        assert "b has no values" in error_of([axis("a", 1), axis("b")], mode), mode
        assert "a is given twice" in error_of([axis("a", 1), axis("a", 1)], mode), mode
        assert "both go to 3.x" in error_of(
            [axis("a", 1, places=("1.x", "3.x")), axis("b", 1, places=("3.x",))], mode
        ), mode


def test_lists_are_checked_alike() -> None:
    with pytest.raises(BadAxes, match="list 1 has 2 values and list 2 3"):
        combine_lists([[1, 2], [1, 2, 3]], Mode.LINEAR)
    with pytest.raises(BadAxes, match="list 2 has no values"):
        combine_lists([[1], []], Mode.MATRIX)
