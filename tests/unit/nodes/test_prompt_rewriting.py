"""A prompt with an iterator becomes a plan, with warnings for what is wrong."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.nodes.core.parameter_parser import MOST_MEMBERS
from comfyui_agent.nodes.core.prompt_rewriting import Target
from support.planned_prompts import Prompt, asked, axes, graph, parameter, plan_for, refusal


def test_two_parameters_make_a_batch() -> None:
    plan = plan_for(graph(parameter("3.seed", "1,2,3", "Seed"), parameter("3.cfg", "7..8", "CFG")))
    assert (plan.iterator, plan.name, plan.combinations.mode, len(plan.combinations)) == ("20", "cats", "matrix", 6)
    assert axes(plan) == {"Seed": [1, 2, 3], "CFG": [7, 8]}
    assert plan.targets == {"Seed": Target("3", "seed"), "CFG": Target("3", "cfg")}
    assert [plan.combinations.values_at(index) for index in (0, 1, 5)] == [
        {"Seed": 1, "CFG": 7},
        {"Seed": 1, "CFG": 8},
        {"Seed": 3, "CFG": 8},
    ]


def test_linear_goes_in_step() -> None:
    plan = plan_for(graph(parameter("3.seed", "1,2,3"), parameter("3.cfg", "7"), mode="linear"))
    assert [plan.combinations.values_at(index) for index in range(3)] == [
        {"seed": seed, "cfg": 7} for seed in (1, 2, 3)
    ]
    assert plan.combinations.mode == "linear"


def test_parameters_go_by_the_numbers_of_their_inputs() -> None:
    prompt = graph()
    places = ["3.seed", "3.cfg", "3.steps"]
    for slot, place in zip(("param_10", "param_2", "param_1"), places, strict=True):
        prompt[f"n{slot}"] = parameter(place)
        prompt["20"]["inputs"][slot] = [f"n{slot}", 0]
    assert list(axes(plan_for(prompt))) == ["steps", "cfg", "seed"]


@pytest.mark.parametrize(
    ("place", "values", "parsed"),
    [
        ("3.seed", "1,2.5", [1, 2.5]),
        ("3.cfg", "1,2.5", [1, 2.5]),
        ("3.sampler_name", "1,true", ["1", "true"]),
        ("3.tiled", "yes,off", [True, False]),
        ("3.model", "1,red,true", [1, "red", True]),
        ("3.denoise", "0.5,red", [0.5, "red"]),
    ],
)
@pytest.mark.parametrize("type_", ["AUTO", "", None])
def test_auto_takes_the_type_of_the_input(place: str, values: str, parsed: list[Any], type_: Any) -> None:
    (found,) = axes(plan_for(graph(parameter(place, values, type_=type_)))).values()
    assert [(type(value), value) for value in found] == [(type(value), value) for value in parsed]


def test_a_node_may_be_called_as_people_see_it() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["98:6"] = {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat"}}
    prompt["101"]["inputs"].update(node_id=" #98:6 ", input_name=" text ")
    assert plan_for(prompt).targets == {"text": Target("98:6", "text")}
    prompt["101"]["inputs"]["node_id"] = 3
    prompt["101"]["inputs"]["input_name"] = "seed"
    assert plan_for(prompt).targets == {"seed": Target("3", "seed")}


def test_values_may_come_from_a_node_that_holds_a_text() -> None:
    prompt = graph(parameter("3.seed", ["50", 0]))
    prompt["50"] = {"class_type": "PrimitiveStringMultiline", "inputs": {"value": "1..3"}}
    assert axes(plan_for(prompt)) == {"seed": [1, 2, 3]}
    prompt["50"] = {"class_type": "PrimitiveInt", "inputs": {"value": 7}}
    assert axes(plan_for(prompt)) == {"seed": [7]}


@pytest.mark.parametrize(
    "node",
    [
        {"class_type": "LoadText", "inputs": {"file": "a.txt"}},
        {"class_type": "PrimitiveString", "inputs": {"value": ["51", 0]}},
        {"class_type": "PrimitiveString", "inputs": {}},
        {"class_type": "PrimitiveString"},
        {"class_type": "StringReplace", "inputs": {"string": "1,2", "find": "1", "replace": "7"}},
        {"class_type": "MathMultiply", "inputs": {"value": 7, "factor": 2}},
        {"class_type": "CaseConverter", "inputs": {"string": "a,b", "mode": "UPPERCASE"}},
        None,
    ],
)
def test_values_that_are_known_only_when_the_prompt_runs_are_refused(node: Any) -> None:
    prompt = graph(parameter("3.sampler_name", ["50", 0]))
    if node is not None:
        prompt["50"] = node
    assert "values of parameter 101 comes from a node whose value is not known yet: type it in" in refusal(prompt)


def test_values_may_be_in_a_file_of_the_input_folder(tmp_path: Path) -> None:
    (tmp_path / "seeds.txt").write_text("4\n5\n", encoding="utf-8")
    plan, warnings = asked({"prompt": graph(parameter("3.seed", "@seeds.txt"))}, tmp_path)
    assert plan is not None
    assert (axes(plan), warnings) == ({"seed": [4, 5]}, [])


def test_names_are_what_people_call_them_and_unique() -> None:
    prompt = graph(
        parameter("3.seed", name="  the \n number "),
        parameter("3.cfg", name="the number"),
        parameter("3.steps", name="steps"),
        parameter("3.denoise", "1", name="steps"),
        parameter("4.ckpt_name", name=None),
        parameter("3.tiled", "true", name="x" * 500),
    )
    assert list(axes(plan_for(prompt))) == [
        "the number",
        "the number (3.cfg)",
        "steps",
        "steps (3.denoise)",
        "ckpt_name",
        "x" * 80,
    ]


def test_the_first_iterator_makes_the_batch_and_others_are_left_out() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["100"] = copy.deepcopy(prompt["20"])
    prompt["3000"] = {"class_type": "WIIterator", "inputs": {"enabled": False}}
    plan, warnings = asked({"prompt": prompt})
    assert plan is not None
    assert plan.iterator == "20"
    assert warnings == ["iterator 100 is left out: one iterator makes the batch of a prompt, and 20 comes first"]


@pytest.mark.parametrize(
    ("enabled", "is_on"),
    [(True, True), ("true", True), (False, False), ("False", False), ("", False), (None, False), (["50", 0], False)],
)
def test_an_iterator_is_on_or_off(enabled: Any, is_on: bool) -> None:
    plan, warnings = asked({"prompt": graph(parameter("3.seed"), enabled=enabled)})
    assert (plan is not None, warnings) == (is_on, [])


@pytest.mark.parametrize(
    "document",
    [None, 5, [], {}, {"prompt": []}, {"prompt": {"1": None}}, {"prompt": {"1": {"class_type": ["WIIterator"]}}}],
)
def test_a_request_without_an_iterator_has_no_plan(document: Any) -> None:
    assert asked(document) == (None, [])


@pytest.mark.parametrize(
    ("given", "name"), [(None, "batch"), ("  ", "batch"), (["50", 0], "batch"), ("n" * 999, "n" * 80)]
)
def test_a_batch_has_a_name(given: Any, name: str) -> None:
    assert plan_for(graph(parameter("3.seed"), batch_name=given)).name == name


# Warnings.


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (parameter("33.seed"), "there is no node '33' that runs; did you mean 3?"),
        (parameter("3.sed"), "KSampler (node 3) has no input 'sed'; did you mean seed?"),
        (parameter("4.colour"), "CheckpointLoaderSimple (node 4) has no input 'colour'; there are ckpt_name"),
        (parameter(".seed"), "parameter 101 does not say what it drives: give node_id and input_name"),
        (parameter("3."), "parameter 101 does not say what it drives: give node_id and input_name"),
        (parameter("20.batch_name"), "node 20 is one of E3's own: drive a node that renders"),
        (parameter("102.values"), "node 102 is one of E3's own: drive a node that renders"),
        (parameter("3.seed", ""), "there are no values"),
        (parameter("3.seed", None), "values are not a text"),
        (parameter("3.seed", {"a": 1}), "values are not a text"),
        (parameter("3.seed", "1,x"), "value 2: 'x' is not a number"),
        (parameter("3.seed", type_="COLOUR"), "'COLOUR' is no type"),
        (parameter("3.seed", "@missing.txt"), "'@missing.txt' is not there"),
        (parameter("3.seed", "@../secret.txt"), "is not in ComfyUI's input folder"),
        ({"class_type": "PrimitiveInt", "inputs": {"value": 1}}, "it is not connected to an E3 Parameter: connect one"),
        ({"class_type": "WIParameter"}, "does not say what it drives"),
        ({"class_type": "WIParameter", "inputs": []}, "does not say what it drives"),
    ],
)
def test_a_bad_parameter_is_left_out_with_a_warning(tmp_path: Path, bad: Prompt, message: str) -> None:
    plan, warnings = asked({"prompt": graph(bad, parameter("3.cfg", "7,8"))}, tmp_path)
    assert plan is not None
    assert axes(plan) == {"cfg": [7, 8]}
    (warning,) = warnings
    assert warning.startswith("param_1 of iterator 20 is left out: ")
    assert message in warning
    assert "\n" not in warning


@pytest.mark.parametrize("link", [None, 5, "101", [], ["999", 0], [None, 0], [["101"], 0], {"a": 1}])
def test_a_slot_without_a_parameter_is_left_out_with_a_warning(link: Any) -> None:
    prompt = graph(parameter("3.seed"), parameter("3.cfg"))
    prompt["20"]["inputs"]["param_1"] = link
    plan, warnings = asked({"prompt": prompt})
    assert plan is not None
    assert list(axes(plan)) == ["cfg"]
    assert warnings == ["param_1 of iterator 20 is left out: it is not connected to an E3 Parameter: connect one"]


def test_a_node_inside_of_a_subgraph_is_found_by_its_last_number() -> None:
    prompt = graph(parameter("6.text"), parameter("3.cfg"))
    prompt["98:6"] = {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat"}}
    _, (warning,) = asked({"prompt": prompt})
    assert warning.endswith("there is no node '6' that runs; did you mean 98:6?")


def test_two_parameters_for_one_input_are_one_too_many() -> None:
    plan, warnings = asked({"prompt": graph(parameter("3.seed", "1,2", "a"), parameter("3.seed", "3,4", "b"))})
    assert plan is not None
    assert axes(plan) == {"a": [1, 2]}
    assert warnings == ["param_2 of iterator 20 is left out: a drives 3.seed already: take one of them away"]


@pytest.mark.parametrize(
    ("prompt", "warning"),
    [
        (graph(), "iterator 20 has no parameter that can be used"),
        (graph(parameter("33.seed")), "param_1 of iterator 20 is left out"),
        (graph(parameter("3.seed"), mode="diagonal"), "iterator 20 makes no batch"),
        (graph(parameter("3.seed"), mode=["50", 0]), "iterator 20 makes no batch"),
        (
            graph(parameter("3.seed", "1,2,3"), parameter("3.cfg", "7,8"), mode="linear"),
            "iterator 20 makes no batch, the prompt runs once, as it is: seed has 3 values and cfg 2",
        ),
    ],
)
def test_without_combinations_the_prompt_runs_once(prompt: Prompt, warning: str) -> None:
    assert refusal(prompt).startswith(warning)


def test_the_most_members_are_taken_and_more_are_not() -> None:
    most = graph(parameter("3.seed", "1..100"), parameter("3.steps", f"1..{MOST_MEMBERS // 100}"))
    assert len(plan_for(most).combinations) == MOST_MEMBERS
    more = graph(parameter("3.seed", "1..101"), parameter("3.steps", f"1..{MOST_MEMBERS // 100}"))
    assert "10,100 combinations, and 10,000 is the most" in refusal(more)
    far = graph(*(parameter(f"3.{name}", "1..9000") for name in ("seed", "steps", "cfg", "denoise")))
    assert "1,000,000 is the most" in refusal(far)
