"""Prompt ids are minted in the one form that all servers take, and graphs of any shape can be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.prompts import (
    check_prompt_id,
    class_of,
    inputs_of,
    is_editor_format,
    lift_values,
    makes_one_picture,
    mint_prompt_id,
    natural_key,
    natural_order,
    place,
    saving_nodes,
)

NONSENSE: list[Any] = [None, 5, "text", [], {}, {"inputs": None}, {"inputs": [], "class_type": 7}]


def test_a_minted_id_is_a_lower_case_uuid4_and_new_each_time() -> None:
    first, second = mint_prompt_id(), mint_prompt_id()
    assert check_prompt_id(first) == first
    assert first != second


def test_any_other_id_is_refused() -> None:
    for text in [
        "",
        "not-an-id",
        "01234567-89AB-4DEF-8123-456789ABCDEF",
        "01234567-89ab-1def-8123-456789abcdef",
        "01234567-89ab-4def-8123-456789abcdef\n",
        "../01234567-89ab-4def-8123-456789abcdef",
    ]:
        with pytest.raises(ValueError, match="mint_prompt_id"):
            check_prompt_id(text)


def test_a_node_of_any_shape_has_no_class_and_no_inputs_rather_than_an_error() -> None:
    for node in NONSENSE:
        graph = {"1": node}
        assert inputs_of(graph, "1") == {}, node
        assert class_of(graph, "1") == "", node
        assert saving_nodes(graph) == {}, node
        assert not makes_one_picture(graph), node


def test_nodes_that_save_are_found_by_their_prefix() -> None:
    graph = {
        "1": {"class_type": "SaveImage", "inputs": {"filename_prefix": "a/b"}},
        "2": {"class_type": "SaveImage", "inputs": {"filename_prefix": ["5", 0]}},
        "3": {"class_type": "PreviewImage", "inputs": {}},
    }
    assert saving_nodes(graph) == {"1": "a/b"}


def test_a_batch_is_seen_in_the_literals() -> None:
    for count, one in [(1, True), (2, False), (["7", 0], False)]:
        assert makes_one_picture({"1": {"class_type": "EmptyImage", "inputs": {"batch_size": count}}}) is one, (
            count,
            one,
        )


def test_a_class_that_may_make_several_pictures_is_not_taken_for_one() -> None:
    for class_type in ["ImageBatch", "RepeatImageBatch", "LoadImage", "SomeCustomNode"]:
        assert not makes_one_picture({"1": {"class_type": class_type, "inputs": {}}}), class_type


def test_node_ids_are_sorted_as_people_count() -> None:
    assert natural_order(["10", "9", "98:6", "98", "2.0.10", "2.0.9", "b", "a2", "a10"]) == [
        "2.0.9",
        "2.0.10",
        "9",
        "10",
        "98",
        "98:6",
        "a2",
        "a10",
        "b",
    ]


@given(st.lists(st.integers(min_value=0)))
def test_numbers_are_sorted_as_numbers(numbers: list[int]) -> None:
    assert natural_order(map(str, numbers)) == [str(number) for number in sorted(numbers)]


@given(st.lists(st.text()))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(natural_order(names)) == sorted(names)


def test_a_number_of_any_length_can_be_sorted() -> None:
    assert natural_key("9" * 10_000) > natural_key("8" * 10_000) > natural_key("7")


def test_what_the_editor_saves_is_told_from_a_graph() -> None:
    assert is_editor_format({"nodes": [], "links": [], "version": 0.4})
    assert not is_editor_format({"nodes": {"class_type": "SaveImage", "inputs": {}}})
    assert not is_editor_format({"1": {"class_type": "SaveImage", "inputs": {}}})


def test_prompts_that_differ_in_values_share_a_graph_and_come_back_whole() -> None:
    first = {
        "3": {"class_type": "KSampler", "inputs": {"seed": 1, "cfg": 7.5, "model": ["4", 0], "on": True}},
        "9:1": {
            "class_type": "SaveImage",
            "inputs": {"filename_prefix": "fox", "a.b": "c"},
            "_meta": {"title": "A"},
        },
        "SaveText.0": {"class_type": "SaveText", "inputs": {"text": "a fox"}},
    }
    second = place(first, {"3.seed": 2, "9:1.filename_prefix": "cat"})
    (bare, values), (also, others) = lift_values(first), lift_values(second)
    assert bare == also
    assert values == {"3.seed": 1, "3.cfg": 7.5, "3.on": True, "9:1.filename_prefix": "fox", "9:1.a.b": "c"}
    assert (place(bare, values), place(also, others)) == (first, second)
    assert list(place(bare, values)["3"]["inputs"]) == list(first["3"]["inputs"])


@pytest.mark.parametrize("texts", [["x" * 5_000], ["x" * 3_000] * 30])
def test_values_that_are_long_stay_in_the_graph(texts: list[str]) -> None:
    graph = {str(number): {"class_type": "T", "inputs": {"text": text}} for number, text in enumerate(texts)}
    assert lift_values(graph) == (graph, {})
