"""What the websocket said becomes the seconds of each node."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.comfy.watch import Moment
from comfyui_agent.lab.profiling.runs import node_times
from comfyui_agent.lab.reports.profile import NodeSeconds

GRAPH: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {}},
    "5": {"class_type": "KSampler", "inputs": {}},
    "7": {"class_type": "SaveImage", "inputs": {}},
}


def step(at: float, number: int, node_id: str = "5") -> Moment:
    return Moment(at, "step", node_id, number, 4)


def seconds_of(found: list[NodeSeconds]) -> dict[str, float | None]:
    return {node.node_id: node.seconds for node in found}


def test_a_node_lasts_until_the_next_one_begins_and_the_last_until_the_prompt_has_ended() -> None:
    found = node_times(
        [
            Moment(10.0, "start"),
            Moment(10.5, "node", "1"),
            Moment(12.0, "node", "5"),
            Moment(15.0, "node", "7"),
            Moment(15.25, "success"),
            Moment(99.0, "end"),
        ],
        GRAPH,
    )
    assert seconds_of(found) == {"1": 1.5, "5": 3.0, "7": 0.25}
    assert [node.class_type for node in found] == ["CheckpointLoaderSimple", "KSampler", "SaveImage"]
    assert [node.steps for node in found] == [0, 0, 0]


def test_steps_tell_when_the_first_came_and_how_far_apart_they_are() -> None:
    moments = [Moment(0.0, "node", "5"), step(3.0, 1), step(3.5, 2), step(4.0, 3), step(5.0, 4), Moment(5.5, "end")]
    (node,) = node_times(moments, GRAPH)
    assert (node.seconds, node.first_step_sec, node.steps) == (5.5, 3.0, 4)
    assert node.step_gaps == [0.5, 0.5, 1.0]
    assert (node.node_id, node.class_type) == ("5", "KSampler")


def test_a_node_that_begins_several_times_is_summed_up() -> None:
    moments = [Moment(0.0, "node", "5"), Moment(1.0, "node", "1"), Moment(2.0, "node", "5"), Moment(2.5, "end")]
    assert seconds_of(node_times(moments, GRAPH)) == {"5": 1.5, "1": 1.0}


def test_one_that_is_announced_twice_in_a_row_is_one() -> None:
    moments = [Moment(0.0, "node", "5"), Moment(1.0, "node", "5"), step(1.5, 1), Moment(2.0, "end")]
    (node,) = node_times(moments, GRAPH)
    assert (node.seconds, node.first_step_sec) == (2.0, 1.5)


def test_what_a_node_expands_into_counts_as_the_node() -> None:
    moments = [
        Moment(0.0, "node", "5.0.0.12"),
        Moment(1.0, "node", "5.0.0.13"),
        Moment(3.0, "node", "7"),
        Moment(4, "end"),
    ]
    assert seconds_of(node_times(moments, GRAPH)) == {"5": 3.0, "7": 1.0}


def test_without_an_end_the_last_thing_that_was_heard_ends_it() -> None:
    assert seconds_of(node_times([Moment(0.0, "node", "5"), step(2.0, 1)], GRAPH)) == {"5": 2.0}


def test_steps_of_a_node_that_never_began_are_left_out() -> None:
    found = node_times([Moment(0.0, "node", "7"), step(1.0, 1), Moment(2.0, "end")], GRAPH)
    assert [(node.node_id, node.steps) for node in found] == [("7", 0)]


@pytest.mark.parametrize("moments", [[], [Moment(0.0, "start"), Moment(1.0, "end")]])
def test_nothing_heard_is_nothing_known(moments: list[Moment]) -> None:
    assert node_times(moments, GRAPH) == []
