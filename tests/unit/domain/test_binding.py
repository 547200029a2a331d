"""A name finds its place by map, placeholder, address or unambiguous match; values fit there or are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comfyui_agent.domain.binding import MOST_CANDIDATES, Places, Recipe, Unbindable, bind, is_link
from comfyui_agent.domain.prompts import NoSuchPlace, place


def node(kind: str, title: str = "", **inputs: Any) -> dict[str, Any]:
    return {"class_type": kind, "inputs": inputs, **({"_meta": {"title": title}} if title else {})}


GRAPH = {
    "3": node(
        "KSampler", seed=1, steps=20, cfg=8.0, denoise=1.0, tiled=False, model=["4", 0], extra=None, sizes=[1, 2, 3]
    ),
    "4": node("CheckpointLoaderSimple", ckpt_name="model.safetensors"),
    "6": node("CLIPTextEncode", "Positive prompt", text="a fox", clip=["4", 1]),
    "7": node("CLIPTextEncode", "Negative", text="blurry", clip=["4", 1]),
    "98:6": node("CLIPTextEncode", text="inner", clip=["4", 1]),
    "9": node("SaveImage", filename_prefix="x", images=["3", 0]),
}
PLACES = Places(GRAPH)


def recipe(
    inputs: Mapping[str, tuple[str, ...]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    required: tuple[str, ...] = (),
) -> Recipe:
    return Recipe("wf", "wf.json", required_inputs=required, defaults=defaults or {}, inputs=inputs or {})


def bound(values: Mapping[str, Any], using: Recipe | None = None, graph: Mapping[str, Any] = GRAPH) -> dict[str, Any]:
    return bind(Places(graph), using or recipe(), values)


def problems(
    values: Mapping[str, Any], using: Recipe | None = None, graph: Mapping[str, Any] = GRAPH
) -> dict[str, str]:
    with pytest.raises(Unbindable) as caught:
        bound(values, using, graph)
    assert "\n" not in str(caught.value)
    return caught.value.problems


# Where a name goes


def test_the_recipes_map_counts_first() -> None:
    assert bound({"seed": 5}, recipe({"seed": ("3.steps",)})) == {"3.steps": 5}
    assert bound({"3.seed": 5}, recipe({"3.seed": ("3.steps",)})) == {"3.steps": 5}
    placeholder = {"1": node("A", x="${word}", y="")}
    assert bound({"word": "fox"}, recipe({"word": ("1.y",)}), placeholder) == {"1.x": "fox", "1.y": "fox"}


def test_a_placeholder_counts_before_an_address_and_a_match() -> None:
    graph = {"a": node("A", x="${a_y}", y="old"), "b": node("B", a_y="old")}
    assert bound({"a_y": "new"}, None, graph) == {"a.x": "new"}


def test_an_address_counts_before_a_match() -> None:
    graph = {"6": node("A", text="old"), "7": node("B", **{"6_text": "old"})}
    assert bound({"6_text": "new"}, None, graph) == {"6.text": "new"}


def test_a_name_without_a_map_is_an_address_or_a_match() -> None:
    for name, where in [
        ("3.seed", "3.seed"),
        ("3_seed", "3.seed"),
        ("98:6.text", "98:6.text"),
        ("98:6_text", "98:6.text"),
        ("9_filename_prefix", "9.filename_prefix"),
        ("steps", "3.steps"),
        ("STEPS", "3.steps"),
        ("filename prefix", "9.filename_prefix"),
        ("Negative", "7.text"),
        ("positive_prompt", "6.text"),
        ("Positive-Prompt", "6.text"),
    ]:
        assert PLACES.find(name) == [where], (name, where)


def test_a_name_reaches_its_places_and_those_with_its_placeholder() -> None:
    places = Places({"1": node("A", x="a ${word}", y="")})
    names = ("word", "y", "zzz")
    assert [places.reached(name, recipe()) for name in names] == [["1.x"], ["1.y"], []]


def test_node_ids_may_hold_underscores() -> None:
    graph = {"my_node": node("A", my_text="old")}
    assert bound({"my_node_my_text": "new"}, None, graph) == {"my_node.my_text": "new"}


def test_names_of_inputs_may_hold_dots() -> None:
    graph = {"5": {"class_type": "A", "inputs": {"lora.strength": 1.0}}}
    for name in ("5.lora.strength", "5_lora.strength", "lora.strength", "lora_strength"):
        assert bound({name: 0.5}, None, graph) == {"5.lora.strength": 0.5}


def test_a_map_may_lead_to_several_places_and_to_a_node_with_a_colon() -> None:
    assert bound({"prompt": "fox"}, recipe({"prompt": ("6.text", "98:6.text")})) == {
        "6.text": "fox",
        "98:6.text": "fox",
    }


def test_a_connected_input_is_only_reached_by_its_address() -> None:
    assert bound({"3.model": ["12", 0]}) == {"3.model": ["12", 0]}
    assert "has no place" in problems({"model": "x"})["model"]


def test_an_ambiguous_name_lists_the_candidates() -> None:
    message = problems({"text": "x"})["text"]
    assert message == (
        "'text' fits several places: 6.text (Positive prompt), 7.text (Negative), 98:6.text (CLIPTextEncode). "
        "Name one, such as 6.text"
    )


def test_a_name_that_is_an_input_here_and_a_title_there_is_ambiguous() -> None:
    graph = {"1": node("A", prompt="x"), "2": node("B", "Prompt", text="y")}
    assert "1.prompt (A), 2.text (Prompt)" in problems({"prompt": "z"}, None, graph)["prompt"]


def test_very_many_candidates_are_not_all_listed() -> None:
    graph = {str(number): node("A", text="x") for number in range(40)}
    message = problems({"text": "x"}, None, graph)["text"]
    assert f"and {40 - MOST_CANDIDATES} more" in message
    assert message.index("2.text") < message.index("10.text")


def test_an_unknown_name_is_said_with_what_there_is() -> None:
    for name, says in [
        ("sede", "'sede' has no place in the workflow; did you mean seed?"),
        ("3.sede", "'3.sede': node 3 has no input 'sede'; did you mean seed?"),
        ("zzz", "'zzz' has no place in the workflow; there are "),
        ("12.seed", "'12.seed' has no place in the workflow; did you mean seed?"),
        ("98:6.txt", "'98:6.txt': node 98:6 has no input 'txt'; did you mean text?"),
    ]:
        assert problems({name: 1})[name].startswith(says), (name, says)


def test_a_map_that_leads_nowhere_is_said() -> None:
    for where, says in [
        ("33.seed", "'33.seed': the workflow has no node '33'; did you mean 3?"),
        ("3.sede", "'3.sede': node 3 has no input 'sede'; did you mean seed?"),
        ("seed", "'seed' is not a place: write NODE.input, such as 6.text"),
        ("", "'' is not a place: write NODE.input, such as 6.text"),
    ]:
        assert problems({"seed": 1}, recipe({"seed": (where,)})) == {"seed": says}, (where, says)


def test_names_of_the_recipe_are_suggested_too() -> None:
    using = recipe({"prompt": ("6.text",)}, required=("prompt",))
    assert problems({"promt": "x", "prompt": "y"}, using)["promt"].endswith("did you mean prompt?")


def test_a_name_without_letters_is_no_title_without_letters() -> None:
    for name in ["", "_", "?"]:
        graph = {"6": node("CLIPTextEncode", "🎨", text="x")}
        assert "has no place" in problems({name: "y"}, None, graph)[name], name


def test_a_title_in_any_script_is_a_name() -> None:
    assert bound({"プロンプト": "y"}, None, {"6": node("A", "プロンプト", text="x")}) == {"6.text": "y"}


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems({"text": "x", "sede": 1, "steps": "many", "cfg": 7.0}, recipe(required=("prompt",)))
    assert set(found) == {"text", "sede", "steps", "prompt"}


# Placeholders


def test_a_placeholder_that_is_the_whole_text_takes_the_value_with_its_type() -> None:
    for value in ["fox", 5, 1.5, True, [1, 2], {"a": 1}, ["4", 0], ""]:
        found = bound({"thing": value}, None, {"1": node("A", x="${thing}")})
        assert found == {"1.x": value}, value
        assert type(found["1.x"]) is type(value), value


def test_a_placeholder_inside_a_text_becomes_text() -> None:
    for value, text in [("fox", "a fox!"), (5, "a 5!"), (1.5, "a 1.5!"), (True, "a true!")]:
        assert bound({"thing": value}, None, {"1": node("A", x="a ${thing}!")}) == {"1.x": text}, (value, text)


def test_several_placeholders_and_several_places_are_all_filled() -> None:
    graph = {"1": node("A", x="${a}, ${b}, ${a}"), "2": node("B", y=["${b}", {"deep": "${a}"}], z="none")}
    before = copy.deepcopy(graph)
    assert bound({"a": "1", "b": 2}, None, graph) == {"1.x": "1, 2, 1", "2.y": [2, {"deep": "1"}]}
    assert graph == before


def test_what_is_filled_in_is_not_looked_through_again() -> None:
    assert bound({"a": "${b}", "b": "x"}, None, {"1": node("A", x="${a}-${b}")}) == {"1.x": "${b}-x"}


def test_a_doubled_dollar_is_one_that_stays() -> None:
    for template, text in [
        ("$${thing}", "${thing}"),
        ("$${thing} ${a}", "${thing} fox"),
        ("cost: $5", None),
        ("${}", None),
        ("$a {a}", None),
    ]:
        graph = {"1": node("A", x=template), "2": node("B", y="${a}")}
        found = bound({"a": "fox"}, None, graph)
        assert found == {"2.y": "fox", **({"1.x": text} if text else {})}, (template, text)


def test_an_escaped_placeholder_needs_no_value() -> None:
    assert bound({}, None, {"1": node("A", x="$${a}")}) == {"1.x": "${a}"}


def test_a_placeholder_without_a_value_is_missing() -> None:
    for values in [{}, {"a": None}]:
        graph = {"1": node("A", x="a ${a}")}
        assert problems(values, None, graph) == {"a": "is missing: the template has ${a} and no default for it"}, values


def test_a_placeholder_takes_its_default() -> None:
    graph = {"1": node("A", x="a ${a}")}
    assert bound({}, recipe(defaults={"a": "fox"}), graph) == {"1.x": "a fox"}
    assert bound({"a": "cat"}, recipe(defaults={"a": "fox"}), graph) == {"1.x": "a cat"}


def test_a_placeholder_whose_place_is_given_is_not_missing() -> None:
    assert bound({"1.x": "all of it"}, None, {"1": node("A", x="a ${a}")}) == {"1.x": "all of it"}


def test_names_of_placeholders_may_look_like_addresses() -> None:
    assert bound({"page.title-1:x": "fox"}, None, {"1": node("A", x="${page.title-1:x}")}) == {"1.x": "fox"}


# Values


def test_a_value_that_fits_is_taken_as_the_template_has_it() -> None:
    cases = [
        ("seed", 5, 5),
        ("seed", "5", 5),
        ("seed", " 5 ", 5),
        ("seed", "1e3", 1000),
        ("seed", 2.0, 2),
        ("seed", -(2**70), -(2**70)),
        ("cfg", 7, 7),
        ("cfg", "7.5", 7.5),
        ("cfg", 7.5, 7.5),
        ("steps", 7.5, 7.5),
        ("tiled", True, True),
        ("tiled", "yes", True),
        ("tiled", "Off", False),
        ("filename_prefix", "fox", "fox"),
        ("filename_prefix", 5, "5"),
        ("filename_prefix", "", ""),
        ("extra", "anything", "anything"),
        ("extra", {"a": [1]}, {"a": [1]}),
        ("sizes", [4, 5], [4, 5]),
        ("seed", ["12", 0], ["12", 0]),
        ("filename_prefix", ["12", 0], ["12", 0]),
    ]
    for name, value, becomes in cases:
        found = [(type(each), each) for each in bound({name: value}).values()]
        assert found == [(type(becomes), becomes)], (name, value)


def test_a_value_that_does_not_fit_is_said_with_what_would() -> None:
    for name, value, says in [
        ("seed", "many", "'many' does not fit: 3.seed (KSampler) takes a whole number"),
        ("seed", True, "True does not fit: 3.seed (KSampler) takes a whole number"),
        ("seed", [1, 2], "[1, 2] does not fit: 3.seed (KSampler) takes a whole number"),
        ("seed", {"a": 1}, "{'a': 1} does not fit: 3.seed (KSampler) takes a whole number"),
        ("seed", "", "'' does not fit: 3.seed (KSampler) takes a whole number"),
        ("cfg", "nan", "'nan' does not fit: 3.cfg (KSampler) takes a number"),
        ("cfg", float("nan"), "nan does not fit: 3.cfg (KSampler) takes a number"),
        ("cfg", "inf", "'inf' does not fit: 3.cfg (KSampler) takes a number"),
        ("cfg", float("-inf"), "-inf does not fit: 3.cfg (KSampler) takes a number"),
        ("tiled", 1, "1 does not fit: 3.tiled (KSampler) takes true or false"),
        ("tiled", "maybe", "'maybe' does not fit: 3.tiled (KSampler) takes true or false"),
        ("filename_prefix", True, "True does not fit: 9.filename_prefix (SaveImage) takes a text; put it in quotes"),
        ("filename_prefix", 1.5, "1.5 does not fit: 9.filename_prefix (SaveImage) takes a text; put it in quotes"),
        ("filename_prefix", ["a"], "['a'] does not fit: 9.filename_prefix (SaveImage) takes a text; put it in quotes"),
        ("filename_prefix", {}, "{} does not fit: 9.filename_prefix (SaveImage) takes a text; put it in quotes"),
    ]:
        assert problems({name: value}) == {name: says}, (name, value, says)


def test_a_value_of_any_length_is_cut_in_what_is_said() -> None:
    assert len(problems({"seed": "9" * 5000})["seed"]) < 200
    assert len(problems({"seed": "x" * 50_000})["seed"]) < 200


def test_every_place_of_a_name_has_to_take_its_value() -> None:
    message = problems({"both": 1.5}, recipe({"both": ("3.seed", "3.tiled")}))["both"]
    assert "3.tiled (KSampler) takes true or false" in message


# Several names, defaults, nothing


def test_two_names_for_one_place_are_refused() -> None:
    found = problems({"3.seed": 1, "seed": 2})
    assert found == {"seed": "'seed' and '3.seed' both go to 3.seed: give one of them"}
    using = recipe({"a": ("3.seed",), "b": ("3.steps", "3.seed")})
    assert "both go to 3.seed" in problems({"a": 1, "b": 2}, using)["b"]


def test_a_placeholder_and_the_address_of_its_place_are_two_names_for_one_place() -> None:
    problems({"a": "fox", "1.x": "cat"}, None, {"1": node("A", x="${a}")})


def test_what_is_given_wins_over_a_default_for_the_same_place() -> None:
    using = recipe({"a": ("3.seed",), "b": ("3.seed",)}, {"a": 1, "b": 2})
    assert bound({"b": 9}, using) == {"3.seed": 9}
    assert bound({"a": 9}, using) == {"3.seed": 9}
    assert bound({"3.seed": 9}, using) == {"3.seed": 9}
    assert bound({"seed": 9}, recipe(defaults={"3.seed": 1})) == {"3.seed": 9}


def test_of_two_defaults_for_one_place_the_first_counts() -> None:
    assert bound({}, recipe({"a": ("3.seed",), "b": ("3.seed",)}, {"a": 1, "b": 2})) == {"3.seed": 1}


def test_defaults_are_used_where_nothing_is_given() -> None:
    using = recipe({"prompt": ("6.text",)}, {"prompt": "a fox", "steps": 30})
    assert bound({}, using) == {"6.text": "a fox", "3.steps": 30}
    assert bound({"steps": 5}, using) == {"6.text": "a fox", "3.steps": 5}


def test_a_default_without_a_place_or_of_the_wrong_type_is_said() -> None:
    assert problems({}, recipe(defaults={"setps": 3})) == {
        "setps": "'setps' has no place in the workflow; did you mean steps?"
    }
    assert "does not fit" in problems({}, recipe(defaults={"steps": "many"}))["steps"]


def test_a_default_of_nothing_leaves_the_template_as_it_is() -> None:
    assert bound({}, recipe(defaults={"steps": None, "no such place": None})) == {}


def test_what_is_required_is_named_with_all_that_is() -> None:
    for values in [{}, {"prompt": None}, {"seed": 1}]:
        using = recipe({"prompt": ("6.text",), "seed": ("3.seed",)}, {"seed": 1}, ("prompt", "seed"))
        assert problems(values, using) == {"prompt": "is missing: wf needs prompt, seed"}, values


def test_an_empty_text_and_a_zero_are_values() -> None:
    using = recipe({"prompt": ("6.text",), "seed": ("3.seed",), "on": ("3.tiled",)}, required=("prompt", "seed", "on"))
    assert bound({"prompt": "", "seed": 0, "on": False}, using) == {"6.text": "", "3.seed": 0, "3.tiled": False}


def test_a_default_counts_for_what_is_required() -> None:
    assert bound({}, recipe({"seed": ("3.seed",)}, {"seed": 7}, ("seed",))) == {"3.seed": 7}


def test_nothing_for_something_required_with_a_default_is_missing() -> None:
    assert "is missing" in problems({"seed": None}, recipe({"seed": ("3.seed",)}, {"seed": 7}, ("seed",)))["seed"]


def test_nothing_does_not_fit_where_the_template_has_something() -> None:
    for name in ["seed", "tiled", "filename_prefix"]:
        assert "does not fit" in problems({name: None})[name], name


def test_nothing_fits_where_the_template_has_nothing() -> None:
    assert bound({"extra": None}) == {"3.extra": None}


# Graphs of any kind


def test_a_link_is_a_node_and_the_number_of_an_output() -> None:
    for value, answer in [
        (["4", 0], True),
        (["4", 1.0], True),
        (["98:4", 12], True),
        (["4", True], False),
        ([4, 0], False),
        (["4"], False),
        (["4", "0"], False),
        (["4", 0, 1], False),
        ("4", False),
        (None, False),
        (("4", 0), False),
    ]:
        assert is_link(value) is answer, (value, answer)


def test_a_graph_that_is_not_well_formed_has_the_places_that_it_has() -> None:
    for graph in [
        {},
        {"1": None},
        {"1": []},
        {"1": {}},
        {"1": {"inputs": []}},
        {"1": {"class_type": 5, "inputs": {"a": 1}, "_meta": 5}},
        {"1": {"class_type": "A", "inputs": {"a": 1}, "_meta": {"title": 5}}},
    ]:
        assert set(Places(graph).all) <= {"1.a"}, graph


def test_places_are_listed_in_the_order_in_which_people_count() -> None:
    assert list(Places({"10": node("A", a=1), "2": node("A", a=1), "2:1": node("A", a=1)}).all) == [
        "2.a",
        "2:1.a",
        "10.a",
    ]


SCRAPS = st.sampled_from(
    ["a", "b", "1", "2", "10:3", "text", "Title", "${a}", "${b}", "x ${a}", "$${a}", "_", ".", "", "🎨"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**65) | st.floats(allow_nan=False) | SCRAPS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCRAPS, inner, max_size=2),
    max_leaves=4,
)
NODES = st.fixed_dictionaries(
    {"class_type": SCRAPS, "inputs": st.dictionaries(SCRAPS.filter(bool), VALUES, max_size=4)},
    optional={"_meta": st.fixed_dictionaries({"title": SCRAPS})},
)
GRAPHS = st.dictionaries(st.sampled_from(["1", "2", "10:3", "a", "a_b"]), NODES, max_size=4)
NAMES = SCRAPS | st.sampled_from(["1.a", "1_a", "2.text", "a_b_a", "10:3.a", "10:3_text", "a.", ".a", "1"])
RECIPES = st.builds(
    Recipe,
    st.just("wf"),
    st.just("wf.json"),
    required_inputs=st.lists(NAMES, max_size=2).map(tuple),
    defaults=st.dictionaries(NAMES, VALUES, max_size=2),
    inputs=st.dictionaries(NAMES, st.lists(NAMES, max_size=2).map(tuple), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(GRAPHS, RECIPES, st.dictionaries(NAMES, VALUES, max_size=3))
def test_binding_leaves_the_graph_alone_and_every_bound_place_is_there(
    graph: dict[str, Any], using: Recipe, values: dict[str, Any]
) -> None:
    before, given_before = copy.deepcopy(graph), copy.deepcopy(values)
    places = Places(graph)
    try:
        found = bind(places, using, values)
    except Unbindable:
        found = {}
    assert graph == before
    assert values == given_before
    for where in found:
        assert where in places.all
        assert places.all[where].name in graph[places.all[where].node_id]["inputs"]
    placed = place(graph, found)
    assert graph == before
    assert placed.keys() == graph.keys()
    for node_id, each in graph.items():
        assert placed[node_id]["inputs"].keys() == each["inputs"].keys()
        for name, value in each["inputs"].items():
            where = f"{node_id}.{name}"
            assert placed[node_id]["inputs"][name] == found.get(where, value)


@settings(max_examples=100, deadline=None)
@given(GRAPHS, NAMES)
def test_a_name_is_found_or_said_not_to_be(graph: dict[str, Any], name: str) -> None:
    places = Places(graph)
    said = ""
    found: list[str] = []
    try:
        found = places.find(name)
    except NoSuchPlace as error:
        said = str(error)
    assert set(found) <= set(places.all)
    assert found or name in places.placeholders or repr(name) in said


def test_a_workflow_of_ten_thousand_nodes_is_bound_soon() -> None:
    graph = {str(number): node("A", text="${a}", clip=["1", 0], seed=1) for number in range(10_000)}
    found = bound({"a": "fox", "9999.seed": 5}, None, graph)
    assert len(found) == 10_001
    assert json.dumps(found)
