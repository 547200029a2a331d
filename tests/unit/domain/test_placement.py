"""Values go where their places say, into a copy; a place that is not there is named."""

from __future__ import annotations

import copy
import re

import pytest

from comfyui_agent.domain.prompts import NoSuchPlace, place, split_place

GRAPH = {
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "", "clip": ["4", 1]}, "_meta": {"title": "Prompt"}},
    "98:6": {"class_type": "CLIPTextEncode", "inputs": {"text": ""}},
    "9": {"class_type": "SaveImage"},
}


def test_a_place_is_a_node_and_an_input() -> None:
    for text, parts in [
        ("6.text", ("6", "text")),
        ("98:6.text", ("98:6", "text")),
        ("3.lora.strength", ("3", "lora.strength")),
    ]:
        assert split_place(text) == parts, (text, parts)


def test_what_is_not_a_place_is_said_to_be_none() -> None:
    for text in ["", "6", "6.", ".text", ".", "text"]:
        with pytest.raises(NoSuchPlace, match=r"is not a place: write NODE\.input"):
            split_place(text)


def test_values_are_placed_and_everything_else_stays() -> None:
    before = copy.deepcopy(GRAPH)
    placed = place(GRAPH, {"6.text": "a knight", "98:6.text": "a fox", "6.weight": 1.5})
    assert placed["6"] == {**GRAPH["6"], "inputs": {"text": "a knight", "clip": ["4", 1], "weight": 1.5}}
    assert placed["98:6"]["inputs"] == {"text": "a fox"}
    assert placed["9"] is GRAPH["9"]
    assert before == GRAPH


def test_two_values_in_one_node_are_both_placed() -> None:
    assert place(GRAPH, {"6.a": 1, "6.b": 2})["6"]["inputs"] == {"text": "", "clip": ["4", 1], "a": 1, "b": 2}


def test_a_node_without_inputs_gets_them() -> None:
    assert place(GRAPH, {"9.filename_prefix": "x"})["9"] == {
        "class_type": "SaveImage",
        "inputs": {"filename_prefix": "x"},
    }


def test_nothing_to_place_gives_an_equal_graph() -> None:
    assert place(GRAPH, {}) == GRAPH


def test_a_node_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(NoSuchPlace, match=re.escape("'7.text': the workflow has no node '7'; it has 6, 98:6, 9")):
        place(GRAPH, {"7.text": "x"})


def test_a_long_workflow_is_not_listed_to_its_end() -> None:
    with pytest.raises(NoSuchPlace, match=r"0, 1, 2, 3, 4, 5, 6, 7 and 12 more$"):
        place({str(number): {} for number in range(20)}, {"x.text": 1})


def test_a_node_that_is_no_node_is_no_place() -> None:
    with pytest.raises(NoSuchPlace):
        place({"6": "text"}, {"6.text": "x"})
