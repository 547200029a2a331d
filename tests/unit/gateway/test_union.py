"""What any server offers is offered."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from comfyui_agent.gateway.union import united_definitions, united_lists

OPTIONS = {"tooltip": "which one"}


def loader(declared: Any, section: str = "required", **facts: Any) -> dict[str, Any]:
    return {"input": {section: {"name": declared, "strength": ["FLOAT", {"default": 1}]}}, **facts}


def test_every_class_of_every_server_is_there() -> None:
    both = united_definitions([{"A": loader([["x"]]), "B": {}}, {"C": {}}])
    assert list(both) == ["A", "B", "C"]


@pytest.mark.parametrize("section", ["required", "optional"])
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ([["b", "a"], OPTIONS], [["a", "c"], {}], [["b", "a", "c"], OPTIONS]),
        ([["a"]], [["a", "c"]], [["a", "c"]]),
        ([[]], [["c"]], [["c"]]),
        ([[512, [1]]], [[[1], "512", 1024]], [[512, [1], "512", 1024]]),
        (
            ["COMBO", {"options": ["a"], **OPTIONS}],
            ["COMBO", {"options": ["c"]}],
            ["COMBO", {"options": ["a", "c"], **OPTIONS}],
        ),
        (["COMBO", {"options": ["a"]}], [["c", "a"], {}], ["COMBO", {"options": ["a", "c"]}]),
        ([["a"], OPTIONS], ["COMBO", {"options": ["c"]}], [["a", "c"], OPTIONS]),
        (["MODEL", OPTIONS], [["c"]], ["MODEL", OPTIONS]),
        (["COMBO", {"remote": {}}], ["COMBO", {"options": ["c"]}], ["COMBO", {"remote": {}}]),
        (["COMBO"], ["COMBO", {"options": ["c"]}], ["COMBO"]),
        ([["a"]], ["MODEL"], [["a"]]),
        ([["a"]], None, [["a"]]),
        (None, [["a"]], None),
        ([], [["a"]], []),
    ],
)
def test_choices_are_joined_in_order_and_the_rest_is_the_first_servers(
    section: str, first: Any, second: Any, together: Any
) -> None:
    answers = [{"Loader": loader(first, section, first=True)}, {"Loader": loader(second, section, first=False)}]
    before = copy.deepcopy(answers)
    assert united_definitions(answers) == {"Loader": loader(together, section, first=True)}
    assert answers == before, "answers are kept, and united again"


@pytest.mark.parametrize("odd", [None, [], "x", {"input": None}, {"input": {"required": []}}])
def test_a_definition_of_another_shape_harms_nobody(odd: Any) -> None:
    known = loader([["a"]])
    assert united_definitions([{"A": known, "B": odd}, {"A": odd, "B": known}]) == {"A": known, "B": odd}


def test_three_servers_are_joined_as_two_are() -> None:
    answers = [{"A": loader([[name]])} for name in "abc"]
    assert united_definitions(answers) == {"A": loader([["a", "b", "c"]])}


def test_files_are_joined_folder_by_folder() -> None:
    answers = [{"vae": ["b"], "loras": []}, {"vae": ["a", "b"], "clip": ["c"]}]
    assert united_lists(answers) == {"vae": ["b", "a"], "loras": [], "clip": ["c"]}
