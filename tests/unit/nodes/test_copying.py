"""A copy of a request is a request of its own."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from comfyui_agent.nodes.core.copies import copy_of

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


def containers(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for each in inner for found in containers(each))] if isinstance(value, (dict, list)) else []


@given(ANYTHING)
def test_it_says_the_same_and_shares_nothing_that_can_change(value: Any) -> None:
    made = copy_of(value)
    assert json.dumps(made) == json.dumps(value)
    assert not {id(each) for each in containers(made)} & {id(each) for each in containers(value)}


def test_long_texts_are_not_made_twice() -> None:
    text = "x" * 1_000_000
    assert copy_of({"a": [text]})["a"][0] is text


def test_what_is_no_json_is_copied_too() -> None:
    inner = [1]
    assert copy_of({"a": (inner,)}) == {"a": ([1],)}
    assert copy_of({"a": (inner,)})["a"][0] is not inner
