"""The plan of a batch writes the prompt of each member: its values, its marks, and what its grids wait for."""

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
from comfyui_agent.nodes.core.prompt_rewriting import BATCH, INDEX, TOTAL, VALUES, Plan
from support.planned_prompts import BATCH_ID, Prompt, asked, graph, parameter, plan_for


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
