"""A workflow template is known by what it says, however it was written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.domain.jobs import Template

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
GRAPHS = st.dictionaries(st.text(), JSON, max_size=4)


@given(GRAPHS)
def test_a_graph_comes_back_as_it_was(graph: dict[str, Any]) -> None:
    assert Template.of(graph).graph() == json.loads(json.dumps(graph))


@given(GRAPHS)
def test_the_order_of_keys_makes_no_difference(graph: dict[str, Any]) -> None:
    assert Template.of(dict(reversed(graph.items()))) == Template.of(graph)


@given(GRAPHS, GRAPHS)
def test_only_the_same_graph_has_the_same_hash(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (Template.of(one).hash == Template.of(other).hash) is same


def test_the_type_of_a_value_makes_a_difference() -> None:
    assert len({Template.of({"1": {"inputs": {"seed": seed}}}).hash for seed in (1, 1.0, "1", True, None)}) == 5


def test_half_a_character_has_a_hash_and_comes_back() -> None:
    half = json.loads('"\\ud83e"')
    assert Template.of({"1": half}).graph() == {"1": half}


def test_the_hash_is_the_same_tomorrow() -> None:
    template = Template.of({"6": {"class_type": "SaveImage", "inputs": {"text": "x"}}})
    assert template.hash == "90ab665054f7b77b46836fbb58e8f007c8274fca6576253abb7cb15806c9b870"
