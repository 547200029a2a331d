"""A prompt with an iterator becomes a plan, with warnings for what is wrong, and the plan writes each member."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.prompts import leading_to
from comfyui_agent.nodes.core.batch_state import GridOptions
from comfyui_agent.nodes.core.parameter_parser import MOST_MEMBERS
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES, Plan, Target, plan_of

Prompt = dict[str, Any]
MARKS = {BATCH, INDEX, TOTAL, VALUES}
BATCH_ID = "batch_0a1b2c3d"


def parameter(place: str = "3.seed", values: Any = "1,2", name: Any = "", type_: Any = "AUTO") -> Prompt:
    node_id, _, input_name = place.rpartition(".")
    inputs = {"name": name, "type": type_, "values": values, "node_id": node_id, "input_name": input_name}
    return {"class_type": "WIParameter", "inputs": inputs}


def graph(*parameters: Prompt, mode: Any = "matrix", **more: Any) -> Prompt:
    """A sampler whose picture is saved and shown, and an iterator, 20, with parameters 101, 102 and so on."""
    sampler = {
        "seed": 5,
        "steps": 20,
        "cfg": 8.0,
        "sampler_name": "euler",
        "tiled": False,
        "model": ["4", 0],
        "pair": [["4", 0], 1, 2],
    }
    prompt: Prompt = {
        "3": {"class_type": "KSampler", "inputs": sampler, "_meta": {"title": "Sampler"}},
        "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "v1.safetensors"}},
        "20": {"class_type": "WIIterator", "inputs": {"enabled": True, "mode": mode, "batch_name": "cats", **more}},
        "30": {
            "class_type": "WISaveImage",
            "inputs": {"images": ["3", 0], "filename_prefix": "E3/a", "iterator": ["20", 0]},
        },
        "40": {"class_type": "WIGridCompositor", "inputs": {"images": ["3", 0], "iterator": ["20", 0]}},
    }
    for number, node in enumerate(parameters, start=1):
        prompt[str(100 + number)] = node
        prompt["20"]["inputs"][f"param_{number}"] = [str(100 + number), 0]
    return prompt


def declares(class_type: str, input_name: str) -> bool:
    return (class_type, input_name) == ("KSampler", "denoise")


def asked(document: Any, folder: Path | None = None) -> tuple[Plan | None, list[str]]:
    """The plan of a request, and the warnings. Planning changes nothing."""
    before = copy.deepcopy(document)
    warnings: list[str] = []
    plan = plan_of(document, declares, lambda: folder, warnings.append)
    assert document == before
    return plan, warnings


def plan_for(prompt: Prompt, **more: Any) -> Plan:
    plan, warnings = asked({"prompt": prompt, **more})
    assert warnings == []
    assert plan is not None
    return plan


def axes(plan: Plan) -> dict[str, list[Any]]:
    return {axis.name: list(axis.values) for axis in plan.combinations.axes}


def refusal(prompt: Prompt, **more: Any) -> str:
    """The first warning of a prompt that makes no batch."""
    plan, warnings = asked({"prompt": prompt, **more})
    assert plan is None
    assert "the prompt runs once, as it is" in warnings[-1]
    return warnings[0]


# What is asked for.


def test_two_parameters_make_a_batch() -> None:
    plan = plan_for(graph(parameter("3.seed", "1,2,3", "Seed"), parameter("3.cfg", "7..8", "CFG")))
    assert (plan.iterator, plan.name, plan.mode, len(plan.combinations)) == ("20", "cats", "matrix", 6)
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
    assert plan.mode == "linear"


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


# Grids.


def test_a_grid_has_its_options() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["40"]["inputs"].update(columns="seed", rows="cfg", cell_pixels=96, title="T", filename_prefix="E3/g")
    prompt["5"] = copy.deepcopy(prompt["40"])
    prompt["5"]["inputs"] = {"images": ["3", 0], "iterator": ["20", 0], "columns": ["50", 0], "cell_pixels": "large"}
    prompt["6"] = {"class_type": "WIGridCompositor", "inputs": {"images": ["3", 0], "iterator": ["21", 0]}}
    prompt["7"] = {"class_type": "WIGridCompositor", "inputs": {"images": ["3", 0]}}
    assert plan_for(prompt).grid_options == {"5": GridOptions(), "40": GridOptions("seed", "cfg", 96, "T", "E3/g")}
    assert list(plan_for(prompt).grid_options) == ["5", "40"]


def after(plan: Plan, prompt: Prompt, grid: str = "40") -> list[Any]:
    """What a grid waits for in the prompt of a member, besides what it is connected to."""
    document = {"prompt": copy.deepcopy(prompt)}
    plan.write(document, 0, BATCH_ID)
    inputs = document["prompt"][grid]["inputs"]
    return [inputs[name] for name in inputs if name not in prompt[grid]["inputs"]]


def test_a_grid_waits_for_what_saves_the_pictures_of_its_member() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["31"] = copy.deepcopy(prompt["30"])
    prompt["32"] = {"class_type": "WISaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "E3/other"}}
    prompt["33"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "iterator": ["20", 0]}}
    assert after(plan_for(prompt), prompt) == [["30", 0], ["31", 0]]


def test_a_grid_that_stands_behind_what_saves_waits_already() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["35"] = {"class_type": "ImageScale", "inputs": {"image": ["30", 0]}}
    prompt["40"]["inputs"]["images"] = ["35", 0]
    assert after(plan_for(prompt), prompt) == []


def test_a_grid_drags_nothing_in_that_is_not_to_run() -> None:
    prompt = graph(parameter("3.seed"))
    prompt["31"] = copy.deepcopy(prompt["30"])
    plan = plan_for(prompt, partial_execution_targets=["31", "40"])
    assert after(plan, prompt) == [["31", 0]]
    prompt["40"]["inputs"]["images"] = ["30", 0]
    assert after(plan_for(prompt, partial_execution_targets=["40"]), prompt) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12), st.lists(st.booleans(), min_size=8))
def test_waiting_never_leads_round_in_a_circle(links: list[tuple[int, int]], is_grid: list[bool]) -> None:
    """Pictures flow from lower to higher nodes; grids give none."""
    prompt = graph(parameter("3.seed"))
    for number in range(8):
        kind = "WIGridCompositor" if is_grid[number] else "WISaveImage"
        prompt[f"5{number}"] = {"class_type": kind, "inputs": {"images": ["3", 0], "iterator": ["20", 0]}}
    for one, other in links:
        if one < other and not is_grid[one]:
            prompt[f"5{other}"]["inputs"][f"image_{one}"] = [f"5{one}", 0]
    document = {"prompt": copy.deepcopy(prompt)}
    plan_for(prompt).write(document, 0, BATCH_ID)
    for node_id, node in document["prompt"].items():
        before = [link[0] for link in node["inputs"].values() if isinstance(link, list) and len(link) == 2]
        assert node_id not in leading_to(document["prompt"], before)
    grids = [node_id for node_id in prompt if prompt[node_id]["class_type"] == "WIGridCompositor"]
    savers = {node_id for node_id in prompt if prompt[node_id]["class_type"] == "WISaveImage"}
    assert all(savers <= leading_to(document["prompt"], [grid]) for grid in grids)


# The prompt of a member.


def request_of(prompt: Prompt) -> dict[str, Any]:
    widgets = [{"name": name, "widget": {"name": name}} for name in ("seed", "steps", "cfg")]
    nodes = [
        {"id": 3, "inputs": widgets, "widgets_values": [5, "randomize", 20, 8.0]},
        {"id": 20, "inputs": [{"name": "enabled", "widget": {"name": "enabled"}}], "widgets_values": [True, "matrix"]},
    ]
    extra = {"extra_pnginfo": {"workflow": {"nodes": nodes, "version": 0.4}}, "api_key_comfy_org": "key"}
    return {"prompt": prompt, "client_id": "page", "extra_data": extra, "number": 3, "prompt_id": "own"}


def test_a_member_has_its_values_its_marks_and_its_workflow() -> None:
    document = request_of(graph(parameter("3.seed", "1,2"), parameter("3.cfg", "7.5,8.5", "CFG")))
    expected = copy.deepcopy(document)
    plan = plan_for(document["prompt"])
    plan.write(document, 3, BATCH_ID)
    expected["prompt"]["3"]["inputs"].update(seed=2, cfg=8.5)
    marks = {"e3_batch": BATCH_ID, "e3_index": 3, "e3_total": 4, "e3_values": {"seed": 2, "CFG": 8.5}}
    expected["prompt"]["20"]["inputs"].update(marks)
    expected["prompt"]["40"]["inputs"]["e3_after_1"] = ["30", 0]
    sampler, iterator = expected["extra_data"]["extra_pnginfo"]["workflow"]["nodes"]
    sampler["widgets_values"] = [2, "randomize", 20, 8.5]
    iterator["widgets_values"] = [False, "matrix"]
    assert document == expected
    assert list(document["prompt"]["20"]["inputs"])[-4:] == ["e3_batch", "e3_index", "e3_total", "e3_values"]


VALUE = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-1, 1) | st.text(max_size=5)
NODE = st.fixed_dictionaries(
    {"class_type": st.sampled_from(["KSampler", "WISaveImage", "SaveImage"])},
    optional={
        "inputs": st.dictionaries(st.sampled_from(["a", "b", "iterator", "images"]), VALUE | st.just(["20", 0])),
        "_meta": st.dictionaries(st.text(max_size=3), VALUE, max_size=2),
    },
)


def changes(one: Any, other: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Where two documents differ: path → what is there now."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        found: dict[tuple[str, ...], Any] = {}
        for key in {**one, **other}:
            found.update(changes(one.get(key, ...), other.get(key, ...), (*path, key)))
        return found
    return {} if type(one) is type(other) and one == other else {path: other}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["1", "50", "98:6"]), NODE, max_size=3), st.integers(0, 5), VALUE)
def test_nothing_but_driven_inputs_and_marks_changes(nodes: Prompt, index: int, was: Any) -> None:
    prompt = graph(parameter("3.seed", "1,2,3"), parameter("3.cfg", "7,8"))
    prompt["3"]["inputs"]["other"] = was
    prompt.update(copy.deepcopy(nodes))
    document = {"prompt": copy.deepcopy(prompt), "extra_data": {"own": was}, "client_id": "page"}
    before = copy.deepcopy(document)
    plan = plan_for(prompt)
    plan.write(document, index, BATCH_ID)
    found = changes(before, document)
    waits = {path: link for path, link in found.items() if path[-1].startswith("e3_after_")}
    assert all(path[1] == "40" and prompt[link[0]]["class_type"] == "WISaveImage" for path, link in waits.items())
    values = plan.combinations.values_at(index)
    assert {path: value for path, value in found.items() if path not in waits} == {
        ("prompt", "3", "inputs", "seed"): values["seed"],
        ("prompt", "3", "inputs", "cfg"): values["cfg"],
        ("prompt", "20", "inputs", BATCH): BATCH_ID,
        ("prompt", "20", "inputs", INDEX): index,
        ("prompt", "20", "inputs", TOTAL): 6,
        ("prompt", "20", "inputs", VALUES): values,
    }


HOSTILE = st.recursive(
    VALUE | st.sampled_from(["3", "20", "101", "seed", "1,2", "@x", "random:3", "true"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
WORDS = "enabled mode batch_name param_1 param_2 name type values node_id input_name iterator images cell_pixels seed"
HOSTILE_INPUTS = st.dictionaries(
    st.sampled_from(WORDS.split()),
    HOSTILE | st.just(["101", 0]),
)
HOSTILE_PROMPT = st.dictionaries(
    st.sampled_from(["3", "20", "30", "40", "101", "102"]),
    HOSTILE
    | st.fixed_dictionaries(
        {},
        optional={
            "class_type": st.sampled_from(["WIIterator", "WIParameter", "WISaveImage", "WIGridCompositor", "KSampler"])
            | HOSTILE,
            "inputs": HOSTILE_INPUTS | HOSTILE,
        },
    ),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HOSTILE_PROMPT, st.lists(st.sampled_from(["3", "20", "30", "40", "101", "102"]), max_size=3))
def test_any_prompt_is_planned_or_refused(prompt: Any, replaced: list[str]) -> None:
    """Half hostile: some of the nodes are those of a prompt that makes sense."""
    whole = {**graph(parameter("3.seed"), parameter("3.cfg")), **prompt}
    whole.update({node_id: graph(parameter("3.seed"), parameter("3.cfg"))[node_id] for node_id in replaced})
    for document in ({"prompt": prompt}, {"prompt": whole, "partial_execution_targets": prompt.get("3")}):
        plan, _ = asked(document, Path("/nowhere at all"))
        if plan is not None:
            copied = copy.deepcopy(document)
            plan.write(copied, len(plan.combinations) - 1, BATCH_ID)
            assert copied["prompt"][plan.iterator]["inputs"][BATCH] == BATCH_ID


# Whose pictures a grid shows, and who has to report.


@pytest.mark.parametrize(
    ("grid_of", "saver_of", "source"),
    [
        (["30", 0], None, "30"),
        (["3", 0], None, "30"),
        (["9", 0], ["9", 0], "31"),
        (["9", 0], None, "40"),
    ],
    ids=["behind a saver", "beside a saver", "beside another saver", "pictures that no node saves"],
)
def test_a_grid_shows_what_is_saved_of_its_pictures(grid_of: Any, saver_of: Any, source: str) -> None:
    prompt = graph(parameter("3.seed"))
    prompt["9"] = {"class_type": "ImageInvert", "inputs": {"image": ["3", 0]}}
    prompt["40"]["inputs"]["images"] = grid_of
    if saver_of:
        prompt["31"] = {"class_type": "WISaveImage", "inputs": {"images": saver_of, "iterator": ["20", 0]}}
    plan = plan_for(prompt)
    assert (plan.sources, plan.reporters) == ({"40": source}, {"30", source})


def test_without_reporters_the_last_nodes_are_marked_against_the_cache() -> None:
    prompt = graph(parameter("3.seed"))
    del prompt["40"]
    prompt["30"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "x"}}
    plan = plan_for(prompt)
    assert (plan.reporters, plan.ends) == (frozenset(), ("30",))
    document = {"prompt": copy.deepcopy(prompt)}
    plan.write(document, 1, BATCH_ID)
    changed = {node_id for node_id in prompt if document["prompt"][node_id] != prompt[node_id]}
    assert changed == {"3", "20", "30"}
    assert document["prompt"]["30"]["inputs"]["e3_member"] == f"{BATCH_ID}/1"


def test_an_iterator_is_switched_off_in_a_workflow_only_if_that_has_the_values_of_the_member() -> None:
    inputs = [{"name": "enabled", "widget": {"name": "enabled"}, "link": None}]
    iterator = {"id": 20, "inputs": inputs, "widgets_values": [True]}
    sampler = {"id": 3, "inputs": [{"name": "seed", "widget": {"name": "seed"}, "link": None}], "widgets_values": [5]}
    prompt = graph(parameter("3.seed", "7,8"))
    for nodes, values in (([iterator, sampler], [[False], [8]]), ([iterator], [[True]])):
        workflow = {"nodes": copy.deepcopy(nodes)}
        request = {"prompt": copy.deepcopy(prompt), "extra_data": {"extra_pnginfo": {"workflow": workflow}}}
        plan_for(prompt).write(request, 1, BATCH_ID)
        assert [node["widgets_values"] for node in workflow["nodes"]] == values
