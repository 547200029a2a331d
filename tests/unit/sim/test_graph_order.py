"""The order in which nodes run."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from comfyui_agent.sim.engine.graph import ExecutionOrder, is_link
from support.graphs import node
from support.wire import Graph

DIAMOND: Graph = {
    "load": node("Load"),
    "left": node("Work", image=["load", 0]),
    "right": node("Work", image=["load", 0], strength=2),
    "join": node("Join", first=["left", 0], second=["right", 0]),
    "save": node("Save", images=["join", 0]),
}


def order_of(prompt: Graph, roots: list[str], cached: Collection[str] = ()) -> list[str]:
    order = ExecutionOrder(prompt, lambda name: name in cached, lambda name: prompt[name]["class_type"] == "Save")
    for root in roots:
        order.add(root)
    ran = []
    while (name := order.pick()) is not None:
        ran.append(name)
        order.finish(name)
    return ran


def test_a_node_runs_after_everything_it_needs_and_only_once() -> None:
    ran = order_of(DIAMOND, ["save"])
    assert sorted(ran) == sorted(DIAMOND)
    assert ran[0] == "load"
    assert ran[-2:] == ["join", "save"]


def test_what_no_output_needs_does_not_run() -> None:
    assert "stray" not in order_of({**DIAMOND, "stray": node("Work", image=["load", 0])}, ["save"])


def test_a_cached_node_is_left_out_and_so_is_what_only_it_needed() -> None:
    assert order_of(DIAMOND, ["save"], cached=["join"]) == ["save"]


def test_an_output_that_is_ready_goes_before_other_work() -> None:
    prompt = {**DIAMOND, "early": node("Save", images=["load", 0])}
    ran = order_of(prompt, ["save", "early"])
    assert ran[:2] == ["load", "early"]


def test_a_node_that_is_two_inputs_of_another_counts_once() -> None:
    prompt = {"a": node("Load"), "b": node("Save", first=["a", 0], second=["a", 1])}
    assert order_of(prompt, ["b"]) == ["a", "b"]


def test_a_circle_never_becomes_ready() -> None:
    prompt = {"a": node("Work", image=["b", 0]), "b": node("Work", image=["a", 0]), "c": node("Save", images=["b", 0])}
    assert order_of(prompt, ["c"]) == []


def test_a_long_chain_is_ordered() -> None:
    prompt = {"0": node("Load"), **{str(n): node("Work", image=[str(n - 1), 0]) for n in range(1, 3000)}}
    assert order_of(prompt, ["2999"]) == list(prompt)


@pytest.mark.parametrize("value", [["1", 0], ["1", 0.0], ["", -1]])
def test_a_text_and_a_number_are_a_link(value: object) -> None:
    assert is_link(value)


@pytest.mark.parametrize("value", [["1"], ["1", 0, 0], [1, 0], ["1", "0"], ["1", None], "10", None, {"1": 0}, ("1", 0)])
def test_anything_else_is_a_value(value: object) -> None:
    assert not is_link(value)
