"""What inputs leave open is drawn: seeds, choices, wildcards, values of others, texts of files. One seed decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.binding import Places, Recipe, Unbindable
from comfyui_agent.domain.drawing import Drawn, draw

GRAPH: Mapping[str, Any] = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 1, "steps": 20, "positive": ["6", 0]}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox"}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "blurry"}},
}
RECIPE = Recipe("wf", "wf.json", inputs={"prompt": ("6.text",), "negative": ("7.text",), "seed": ("3.seed",)})
LINES = {
    "animals": ["fox", "owl", "hare"],
    "dir/colours": ["{warm|cold} red"],
    "nested": ["a __animals__"],
    "loop": ["x __pool__"],
    "pool": ["y __loop__"],
    "large": ["__half__ __half__"],
    "half": ["y" * 40_000],
}


class Files:
    def wildcard(self, name: str) -> Sequence[str]:
        if name not in LINES:
            raise ValueError(f"__{name}__ is no wildcard")
        return LINES[name]

    def prompt(self, path: str) -> str:
        if path != "knight.txt":
            raise ValueError(f"{path!r} is no file")
        return "a {brave|shy} knight"


def drawn(given: Mapping[str, Any], by: int | str = 7, **defaults: Any) -> Drawn:
    recipe = Recipe("wf", "wf.json", inputs=RECIPE.inputs, defaults=defaults)
    return draw(Places(GRAPH), recipe, given, Files(), by)


def problem(given: Mapping[str, Any]) -> str:
    with pytest.raises(Unbindable) as caught:
        drawn(given)
    return str(caught.value)


def prompts(text: str, count: int = 60) -> set[str]:
    return {drawn({"prompt": text}, seed).values["prompt"] for seed in range(count)}


@pytest.mark.parametrize("name", ["seed", "3.seed", "3_seed"])
@pytest.mark.parametrize("value", ["random", "Random", -1, "-1"])
def test_a_seed_is_drawn_and_what_was_written_is_recorded(name: str, value: object) -> None:
    found = drawn({name: value})
    assert type(found.values[name]) is int
    assert 0 <= found.values[name] < 2**32
    assert found.as_json() == {"drawn": {"seed": 7, "written": {name: value}}}


def test_a_default_may_be_drawn_too() -> None:
    found = drawn({}, seed="random")
    assert (found.values, type(found.recipe.defaults["seed"])) == ({}, int)
    assert found.written == {"seed": "random"}


@pytest.mark.parametrize("given", [{"steps": -1}, {"prompt": "random"}, {"seed": 5}, {"prompt": "a {fox}, [b|c]"}, {}])
def test_what_leaves_nothing_open_stays_as_it_is(given: dict[str, Any]) -> None:
    found = drawn(given)
    assert (found.values, found.written, found.as_json()) == (given, {}, {})


FOUND = {
    "{red|green} fox": {"red fox", "green fox"},
    "{a|{b|c}}": {"a", "b", "c"},
    "{|very }old": {"old", "very old"},
    "an __animals__": {"an fox", "an owl", "an hare"},
    "__dir/colours__": {"warm red", "cold red"},
    "{__animals__|nobody}": {"fox", "owl", "hare", "nobody"},
    "__nested__": {"a fox", "a owl", "a hare"},
    r"\{a|b\} {c|c}": {"{a|b} c"},
    r"\__animals__ {c|c}": {"__animals__ c"},
    r"{a\|b|a\|b}": {"a|b"},
    '{"json": [1]} {x|x}': {'{"json": [1]} x'},
}


@pytest.mark.parametrize("text", FOUND)
def test_every_choice_is_drawn_now_and_then(text: str) -> None:
    assert prompts(text) == FOUND[text]


def test_an_input_may_name_others_drawn_ones_included() -> None:
    found = drawn({"prompt": "${negative}, ${seed}, $${seed}", "negative": "{bad|bad}", "seed": "random"})
    assert found.values["prompt"] == f"bad, {found.values['seed']}, ${{seed}}"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"6.text": "a fox ${seed}", "3.seed": 7}, "a fox 7"),
        ({"prompt": "a fox in ${steps} steps"}, "a fox in 20 steps"),
    ],
)
def test_an_input_may_be_named_in_another_way_or_have_the_templates_value(given: dict[str, Any], text: str) -> None:
    assert next(iter(drawn(given).values.values())) == text


def test_another_input_more_does_not_change_what_the_others_get() -> None:
    first = drawn({"prompt": "{a|b|c|d} __animals__", "seed": -1}).values
    second = drawn({"negative": "{a|b}", "prompt": "{a|b|c|d} __animals__", "seed": -1}).values
    assert {**second, **first} == second


@given(st.text(alphabet="ab{}|\\_ ", max_size=40).filter(lambda text: "__" not in text), st.integers())
def test_the_same_seed_draws_the_same_and_no_text_is_too_odd(text: str, seed: int) -> None:
    assert drawn({"prompt": text}, seed) == drawn({"prompt": text}, seed)


def test_a_text_comes_from_a_file_and_is_drawn_like_any_other() -> None:
    found = drawn({"prompt_file": "knight.txt"})
    assert found.values["prompt"] in ("a brave knight", "a shy knight")
    assert found.written == {"prompt": "a {brave|shy} knight"}


PROBLEMS = {
    "__aliens__ is no wildcard": {"prompt": "__aliens__"},
    "__loop__ includes itself: loop → pool → loop": {"prompt": "__loop__"},
    "longer than 64,000 characters": {"prompt": "__large__"},
    "prompt → negative → prompt stand for each other": {"prompt": "${negative}", "negative": "${prompt}"},
    "${colour} names no other input": {"prompt": "${colour}"},
    "'none.txt' is no file": {"prompt_file": "none.txt"},
    "prompt is given, too": {"prompt_file": "knight.txt", "prompt": "x"},
}


@pytest.mark.parametrize("message", PROBLEMS)
def test_what_cannot_be_drawn_is_said_in_a_line(message: str) -> None:
    said = problem(PROBLEMS[message])
    assert message in said
    assert "\n" not in said
