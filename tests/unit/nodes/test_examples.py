"""The example workflows: each as ComfyUI's page opens it, and as a prompt that can be posted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import comfyui_agent.nodes
from comfyui_agent.nodes import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS
from comfyui_agent.nodes.core.parameter_parser import parse
from comfyui_agent.nodes.core.prompt_rewriting import Plan, plan_of

FOLDER = Path(comfyui_agent.nodes.__file__).parent / "example_workflows"
MEMBERS = {"matrix_of_colours": 90, "linear_pairs": 5, "save_each": 4, "checkpoint_grid": 12}
SHOWN_BY = {
    "matrix_of_colours": "WIIterator",
    "linear_pairs": "WIParameter",
    "save_each": "WISaveImage",
    "checkpoint_grid": "WIGridCompositor",
}
NOTE = "Note"
OURS: dict[str, Any] = dict(NODE_CLASS_MAPPINGS)

each = pytest.mark.parametrize("name", MEMBERS)


def prompt_of(name: str) -> dict[str, Any]:
    """The example in API format."""
    found: dict[str, Any] = json.loads((FOLDER / "api" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def workflow_of(name: str) -> dict[str, Any]:
    """The example in UI format."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def nodes_of(prompt: dict[str, Any], class_type: str) -> dict[str, dict[str, Any]]:
    """The inputs of all nodes of a class, by id."""
    return {node_id: node["inputs"] for node_id, node in prompt.items() if node["class_type"] == class_type}


def planned(name: str) -> tuple[Plan, list[str]]:
    """What the pack makes of an example, and what it complains of."""
    complaints: list[str] = []
    plan = plan_of({"prompt": prompt_of(name)}, lambda *_: False, lambda: None, complaints.append)
    assert plan is not None, complaints
    return plan, complaints


def test_there_is_one_for_each_node_and_each_is_there_in_both_formats() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MEMBERS)
    assert {path.stem for path in (FOLDER / "api").glob("*.json")} == set(MEMBERS)
    assert set(SHOWN_BY.values()) == set(OURS)
    for name, class_type in SHOWN_BY.items():
        assert nodes_of(prompt_of(name), class_type), name


@each
def test_our_nodes_get_the_inputs_that_they_have_and_no_others(name: str) -> None:
    for node_id, node in prompt_of(name).items():
        if node["class_type"] not in OURS:
            continue
        declared = OURS[node["class_type"]].INPUT_TYPES()
        known = [declared["required"], declared.get("optional", {})]
        for given in node["inputs"]:
            assert any(given in inputs for inputs in known), f"{node_id}.{given}"
        assert set(declared["required"]) <= set(node["inputs"]), node_id
        for given, (kind, *_) in declared["required"].items():
            assert not isinstance(kind, list) or node["inputs"][given] in kind, f"{node_id}.{given}"


@each
def test_links_lead_to_nodes_that_give_what_is_wanted(name: str) -> None:
    prompt = prompt_of(name)
    for node_id, node in prompt.items():
        ours = OURS.get(node["class_type"])
        for given, value in node["inputs"].items():
            if not isinstance(value, list):
                continue
            there, slot = value
            assert there in prompt, f"{node_id}.{given}"
            source = OURS.get(prompt[there]["class_type"])
            if ours is not None and source is not None:
                declared = ours.INPUT_TYPES()
                wanted = (declared["required"] if given in declared["required"] else declared["optional"])[given][0]
                assert source.RETURN_TYPES[slot] == wanted, f"{node_id}.{given}"


@each
def test_parameters_drive_inputs_that_are_there_with_values_that_differ(name: str) -> None:
    prompt = prompt_of(name)
    parameters = nodes_of(prompt, "WIParameter")
    ((_, iterator),) = nodes_of(prompt, "WIIterator").items()
    linked = [value[0] for key, value in iterator.items() if key.startswith("param_")]
    assert sorted(linked) == sorted(parameters)
    for node_id, given in parameters.items():
        driven = prompt[given["node_id"]]
        assert given["input_name"] in driven["inputs"], node_id
        assert not isinstance(driven["inputs"][given["input_name"]], list), node_id
        values = parse(given["values"], given["type"])
        assert len(values) == len(set(values)) > 1, node_id


@each
def test_nothing_is_complained_of_and_the_number_of_members_is_right(name: str) -> None:
    plan, complaints = planned(name)
    assert complaints == []
    assert len(plan.combinations) == MEMBERS[name]
    assert len(plan.targets) == len(nodes_of(prompt_of(name), "WIParameter"))


def test_the_matrix_is_nine_by_ten() -> None:
    parameters = nodes_of(prompt_of("matrix_of_colours"), "WIParameter").values()
    lengths = [len(parse(given["values"], given["type"])) for given in parameters]
    assert lengths == [9, 10]
    assert math.prod(lengths) == MEMBERS["matrix_of_colours"]


@each
def test_grids_name_parameters_that_there_are(name: str) -> None:
    plan, _ = planned(name)
    for wish in plan.grid_options.values():
        assert {wish.columns, wish.rows} - {""} <= set(plan.targets)


@each
def test_files_go_below_a_folder_of_their_own(name: str) -> None:
    prompt = prompt_of(name)
    places = [node["inputs"]["filename_prefix"] for node in prompt.values() if "filename_prefix" in node["inputs"]]
    for given in nodes_of(prompt, "WIParameter").values():
        if given["input_name"] == "filename_prefix":
            places += parse(given["values"], given["type"])
    assert places
    assert all(place.startswith("E3/") for place in places)


# The same in the format of ComfyUI's page.


@each
def test_the_workflow_has_the_nodes_of_the_prompt_and_a_note(name: str) -> None:
    workflow = workflow_of(name)
    drawn = {str(node["id"]): node["type"] for node in workflow["nodes"] if node["type"] != NOTE}
    assert drawn == {node_id: node["class_type"] for node_id, node in prompt_of(name).items()}
    (note,) = (node for node in workflow["nodes"] if node["type"] == NOTE)
    assert "Run" in note["widgets_values"][0]


@each
def test_the_workflow_has_the_links_of_the_prompt(name: str) -> None:
    workflow = workflow_of(name)
    inputs = {node["id"]: node.get("inputs", []) for node in workflow["nodes"]}
    drawn = {
        (str(target), inputs[target][slot]["name"]): [str(source), output]
        for _, source, output, target, slot, _ in workflow["links"]
    }
    prompt = prompt_of(name)
    wanted = {
        (node_id, given): value
        for node_id, node in prompt.items()
        for given, value in node["inputs"].items()
        if isinstance(value, list)
    }
    assert drawn == wanted


@each
def test_the_workflow_shows_the_values_of_the_prompt_in_the_order_of_the_inputs(name: str) -> None:
    prompt = prompt_of(name)
    for node in workflow_of(name)["nodes"]:
        if node["type"] not in OURS:
            continue
        declared = OURS[node["type"]].INPUT_TYPES()
        given = prompt[str(node["id"])]["inputs"]
        names = [key for group in ("required", "optional") for key in declared.get(group, {})]
        shown = [given[key] for key in names if key in given and not isinstance(given[key], list)]
        assert node["widgets_values"] == shown, node["id"]


@each
def test_an_iterator_has_one_slot_that_is_free_and_nodes_have_their_names(name: str) -> None:
    for node in workflow_of(name)["nodes"]:
        if node["type"] == "WIIterator":
            slots = [given for given in node["inputs"] if given["name"].startswith("param_")]
            assert [given["link"] is None for given in slots] == [False] * (len(slots) - 1) + [True]
        shown_as = NODE_DISPLAY_NAME_MAPPINGS.get(node["type"])
        if shown_as is not None:
            assert node.get("title", shown_as).startswith(shown_as)
