"""Which values go together: each with each, or in step."""

from __future__ import annotations

import pytest

from comfyui_agent.nodes.core.combination_engine import cartesian, linear_zip

PARAMETERS = [{"name": "seed", "parsed_values": [1, 2]}, {"name": "cfg", "parsed_values": (7.0, 8.0)}]


def test_values_are_combined() -> None:
    assert cartesian([[1, 2], ["a", "b"]]) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    assert linear_zip([[1, 2, 3], ["a", "b", "c"], [True]]) == [(1, "a", True), (2, "b", True), (3, "c", True)]
    assert linear_zip([["x"], [1, 2]]) == [("x", 1), ("x", 2)]


def test_parameters_may_have_their_values_in_them() -> None:
    assert cartesian(PARAMETERS) == cartesian([[1, 2], [7.0, 8.0]])
    assert linear_zip(PARAMETERS) == [(1, 7.0), (2, 8.0)]


def test_what_cannot_be_combined_is_a_value_error() -> None:
    for combine in (cartesian, linear_zip):
        with pytest.raises(ValueError, match="nothing to combine"):
            combine([])
        with pytest.raises(ValueError, match="has no values"):
            combine([[1], []])
    with pytest.raises(ValueError, match="list 1 has 3 values and list 2 2"):
        linear_zip([[1, 2, 3], [1, 2]])
    with pytest.raises(ValueError, match="1,000,000 is the most"):
        cartesian([list(range(1000))] * 5)
