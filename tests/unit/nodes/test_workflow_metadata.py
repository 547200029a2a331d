"""The workflow in a member's files shows that member's values, and is otherwise the one that was sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import comfyui_agent.nodes
from comfyui_agent.nodes.core.workflow_metadata import show_values

EXAMPLES = Path(comfyui_agent.nodes.__file__).parent / "example_workflows"


def widget(name: str, kind: str, link: int | None = None) -> dict[str, Any]:
    return {"localized_name": name, "name": name, "type": kind, "widget": {"name": name}, "link": link}


def slot(name: str, kind: str, link: int | None = None) -> dict[str, Any]:
    return {"localized_name": name, "name": name, "type": kind, "link": link}


def sampler() -> dict[str, Any]:
    """KSampler as the editor saves it: the choice behind the seed has no input of its own."""
    return {
        "id": 3,
        "type": "KSampler",
        "pos": [863, 186],
        "size": [315, 262],
        "mode": 0,
        "inputs": [
            slot("model", "MODEL", 1),
            slot("positive", "CONDITIONING", 4),
            slot("negative", "CONDITIONING", 6),
            slot("latent_image", "LATENT", 2),
            widget("seed", "INT"),
            widget("steps", "INT"),
            widget("cfg", "FLOAT"),
            widget("sampler_name", "COMBO"),
            widget("scheduler", "COMBO"),
            widget("denoise", "FLOAT"),
        ],
        "outputs": [{"name": "LATENT", "type": "LATENT", "links": [7]}],
        "properties": {"Node name for S&R": "KSampler"},
        "widgets_values": [156680208700286, "randomize", 20, 8, "euler", "normal", 1],
    }


def encoder(node_id: int, text: str) -> dict[str, Any]:
    return {
        "id": node_id,
        "type": "CLIPTextEncode",
        "inputs": [slot("clip", "CLIP", 3), widget("text", "STRING")],
        "widgets_values": [text],
    }


def combiner() -> dict[str, Any]:
    """A node of others whose widgets are saved by name."""
    values = {"frame_rate": 8, "format": "video/h264", "save_output": True, "videopreview": {"hidden": False}}
    return {"id": 9, "type": "VHS_VideoCombine", "inputs": [slot("images", "IMAGE", 9)], "widgets_values": values}


def document(*nodes: Any) -> dict[str, Any]:
    workflow = {"last_node_id": 9, "nodes": list(nodes), "links": [[1, 4, 0, 3, 0, "MODEL"]], "version": 0.4}
    return {"prompt": {}, "extra_data": {"extra_pnginfo": {"workflow": workflow}}}


def values_after(node: dict[str, Any], changes: Mapping[str, tuple[Any, Any]]) -> Any:
    """The widgets of a node once the changes are shown; everything else must be what it was."""
    request = document(node, encoder(6, "beside"))
    before = copy.deepcopy(request)
    show_values(request, {(str(node["id"]), name): change for name, change in changes.items()})
    shown = request["extra_data"]["extra_pnginfo"]["workflow"]["nodes"][0]
    values = shown.pop("widgets_values", None)
    before["extra_data"]["extra_pnginfo"]["workflow"]["nodes"][0].pop("widgets_values", None)
    assert request == before
    return values


def test_values_go_to_the_widgets_of_their_inputs() -> None:
    changes = {"seed": (156680208700286, 7), "cfg": (8, 6.5), "sampler_name": ("euler", "ddim"), "denoise": (1, 0.5)}
    assert values_after(sampler(), changes) == [7, "randomize", 20, 6.5, "ddim", "normal", 0.5]


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ("seed steps", [5, "randomize", 20], [5, "randomize", 30]),
        ("seed steps", [5, "increment-wrap", 20], [5, "increment-wrap", 30]),
        ("seed steps", [5, 20], [5, 30]),
        ("add_noise noise_seed steps", ["enable", 5, "fixed", 20], ["enable", 5, "fixed", 30]),
        ("seed steps", [5], [5]),
        ("steps", "text", "text"),
        ("", [20], [20]),
    ],
)
def test_the_choice_behind_a_seed_takes_a_place_of_its_own(names: str, values: Any, expected: Any) -> None:
    inputs = [widget(name, "INT") for name in names.split()]
    node = {"id": "1", "inputs": inputs, "widgets_values": values}
    assert values_after(node, {"steps": (20, 30)}) == expected


def test_widgets_by_name_are_changed_by_name() -> None:
    values = values_after(combiner(), {"frame_rate": (8, 12), "save_output": (True, False)})
    assert values == {**combiner()["widgets_values"], "frame_rate": 12, "save_output": False}
    assert "pingpong" not in values_after(combiner(), {"pingpong": (None, True)})


def test_a_value_that_is_not_the_one_of_the_prompt_stays() -> None:
    values = sampler()["widgets_values"]
    for name, before in [
        ("steps", 21),
        ("steps", "20"),
        ("steps", 20.0),
        ("denoise", True),
        ("model", ["4", 0]),
        ("x", 2),
    ]:
        assert values_after(sampler(), {name: (before, "changed")}) == values, name
    linked = sampler()
    linked["inputs"][5]["link"] = 12
    assert values_after(linked, {"steps": (20, 30)}) == values
    for inputs in (None, {}, [slot("model", "MODEL")], [None, 5, {"widget": "seed"}]):
        assert values_after({**sampler(), "inputs": inputs}, {"seed": (values[0], 1)}) == values


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.json")))
def test_the_example_workflows_show_each_value_of_their_prompts_or_stay(name: str) -> None:
    workflow = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    prompt = json.loads((EXAMPLES / "api" / name).read_text(encoding="utf-8"))
    before = copy.deepcopy(workflow)
    for node_id, node in prompt.items():
        for input_name, value in node["inputs"].items():
            request = {"extra_data": {"extra_pnginfo": {"workflow": copy.deepcopy(workflow)}}}
            show_values(request, {(node_id, input_name): (value, "changed")})
            differ = different(before, request["extra_data"]["extra_pnginfo"]["workflow"])
            assert len(differ) <= 1
            assert all(was == value and now == "changed" for was, now in differ)


def different(one: Any, other: Any) -> list[tuple[Any, Any]]:
    """What differs between two documents of the same shape, from top to bottom."""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        return [pair for key in one for pair in different(one[key], other[key])]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [pair for a, b in zip(one, other, strict=True) for pair in different(a, b)]
    return [] if type(one) is type(other) and one == other else [(one, other)]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-1, 1) | st.sampled_from(["", "a", "seed", "fixed"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "name", "inputs", "widget", "a"]), inner, max_size=3)
    ),
    max_leaves=8,
)
INPUTS = st.lists(
    st.builds(lambda name: {"name": name, "widget": {"name": name}}, st.sampled_from(["seed", "a", "b"])) | ANYTHING,
    max_size=4,
)
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["a", "fixed", "randomize"])
NODES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 2) | ANYTHING,
        "inputs": INPUTS | ANYTHING,
        "widgets_values": st.lists(SCALARS, max_size=5)
        | st.dictionaries(st.sampled_from(["seed", "a", "b"]), SCALARS)
        | ANYTHING,
    },
)
WORKFLOWS = st.fixed_dictionaries({"nodes": st.lists(NODES | ANYTHING, max_size=3) | ANYTHING}) | ANYTHING
REQUESTS = ANYTHING | st.builds(lambda workflow: {"extra_data": {"extra_pnginfo": {"workflow": workflow}}}, WORKFLOWS)
CHANGES = st.dictionaries(
    st.tuples(st.sampled_from(["0", "1", "None"]), st.sampled_from(["seed", "a", "b"])),
    st.tuples(SCALARS, st.just("changed")),
    max_size=3,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS, CHANGES)
def test_in_any_request_only_values_of_the_prompt_change(
    request: Any, changes: dict[tuple[str, str], tuple[Any, Any]]
) -> None:
    before = copy.deepcopy(request)
    show_values(request, changes)
    had = [was for was, _ in changes.values()]
    for was, now in different(before, request):
        assert now == "changed"
        assert any(type(was) is type(each) and was == each for each in had)


def test_all_values_are_shown_or_none() -> None:
    request = document(sampler(), encoder(6, "a cat"))
    before = copy.deepcopy(request)
    assert not show_values(request, {("3", "steps"): (20, 30), ("6", "text"): ("another", "a dog")})
    assert request == before
    assert show_values(request, {("3", "steps"): (20, 30), ("6", "text"): ("a cat", "a dog")})
    assert request != before


def with_subgraph(*outer: int) -> dict[str, Any]:
    request = document(*({"id": node_id, "type": "a-subgraph", "inputs": []} for node_id in outer))
    workflow = request["extra_data"]["extra_pnginfo"]["workflow"]
    workflow["definitions"] = {
        "subgraphs": [{"id": "another", "nodes": []}, {"id": "a-subgraph", "nodes": [sampler()]}]
    }
    return request


def test_a_node_in_a_subgraph_is_found_by_both_its_ids() -> None:
    request = with_subgraph(98)
    assert show_values(request, {("98:3", "steps"): (20, 30)})
    workflow = request["extra_data"]["extra_pnginfo"]["workflow"]
    assert workflow["definitions"]["subgraphs"][1]["nodes"][0]["widgets_values"][2] == 30


@pytest.mark.parametrize("node_id", ["99:3", "98:4", "98:3:3", "3"])
def test_a_node_that_is_not_there_is_not_found(node_id: str) -> None:
    assert not show_values(with_subgraph(98), {(node_id, "steps"): (20, 30)})


def test_a_subgraph_that_stands_in_two_places_is_left_alone() -> None:
    assert not show_values(with_subgraph(97, 98), {("98:3", "steps"): (20, 30)})
