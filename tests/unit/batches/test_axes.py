"""What a sweep asks for is counted and bounded before any value of it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from comfyui_agent.batches.axes import BadSweep, Bounds, CountedAxes, TooLarge, count_axes
from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import Places, Recipe
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.values import Values

GRAPH = {
    "3": {"class_type": "KSampler", "inputs": {"seed": 1, "cfg": 7.0, "steps": 20}},
    "6": {"class_type": "Text", "inputs": {"text": "a ${animal}"}},
}
FEW = Bounds(axes=3, combinations=100, values=150)


@pytest.fixture(autouse=True)
def _nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a value was made")

    monkeypatch.setattr(Values, "tokens", refuse)


def counted(
    sets: Mapping[str, Any], mode: Mode = Mode.MATRIX, bounds: Bounds | None = None, **more: Any
) -> CountedAxes:
    workflow = Workflow(Recipe("wf", "wf.json"), Template.of(GRAPH), GRAPH, Places(GRAPH))
    return count_axes(SweepRequest(workflow, sets, mode=mode, **more), no_files, bounds)


def no_files(name: str) -> Sequence[str]:
    raise FileNotFoundError(2, f"there is no {name}")


def test_axes_are_counted() -> None:
    found = counted({" seed , 3.cfg ": "1..1000", "6.text": ["a", "b"], "animal": "cat | dog"})
    assert [(axis.name, len(axis.values)) for axis in found.axes] == [
        ("seed,3.cfg", 1000),
        ("6.text", 2),
        ("animal", 2),
    ]
    assert [axis.addressed for axis in found.axes] == [("3.seed", "3.cfg"), ("6.text",), ("${animal}",)]


def test_what_is_too_much_is_refused_before_a_value_is_made() -> None:
    for sets, bounds, words in [
        ({" " * n + "seed": "1..1000000" for n in range(40)}, None, "the sweep has 40 axes, and 20 is the most"),
        ({" " * n + "seed": "1..1000000" for n in range(20)}, None, "seed is given twice"),
        ({"seed": "1..1000000", "3.seed": "1..1000000"}, None, "seed and 3.seed both go to 3.seed"),
        ({"seed, seed": "1..1000000"}, None, "seed stands there twice"),
        ({"seed": "1..101"}, FEW, "1..101 has 101 values, and 100 is the most"),
        ({"seed": list(range(101))}, FEW, "the list has 101 values, and 100 is the most"),
        ({"seed": "random:101"}, FEW, "'random:101' has 101 values, and 100 is the most"),
        ({"seed": "1..11", "cfg": "1..10"}, FEW, "seed (11), cfg (10) make 110 combinations; 100 is the most"),
        ({"seed": "1..1000000", "cfg": "1..1000000", "steps": "1..1000000"}, None, "make far too many combinations"),
        ({"seed,3.cfg": "1..80"}, FEW, "the axes have 160 values together, and 150 is the most"),
        ({"x" * 1001: "1"}, None, "has more than 1,000 letters"),
    ]:
        with pytest.raises(BadSweep) as caught:
            counted(sets, Mode.MATRIX, bounds)
        assert words in str(caught.value), (sets, bounds, words)
        assert len(str(caught.value)) < 1_500, (sets, bounds, words)


def test_leaving_bad_values_out_goes_around_no_bound() -> None:
    with pytest.raises(BadSweep, match="the sweep has 40 axes, and 20 is the most") as caught:
        counted({" " * n + "seed": "1..1000000" for n in range(40)}, skip_bad=True)
    assert not isinstance(caught.value, TooLarge)  # the command line takes no more of them
    found = counted({"seed": "1..101", "cfg": "1..2"}, bounds=FEW, skip_bad=True)
    assert [axis.name for axis in found.axes] == ["cfg"]
    assert found.warnings == [
        "--set seed: 1..101 has 101 values, and 100 is the most: take a larger step or a nearer end; left out"
    ]


def test_in_step_the_longest_counts_and_all_values_together() -> None:
    assert len(counted({"seed": "1..75", "cfg": "1..75"}, Mode.LINEAR, FEW).axes) == 2
    with pytest.raises(TooLarge, match="152 values together"):
        counted({"seed": "1..76", "cfg": "1..76"}, Mode.LINEAR, FEW)


def test_a_very_long_name_of_an_input_is_looked_for_once() -> None:
    """A name of a million underscores has a million places at which it could be a node and an input."""
    assert Places(GRAPH)._address("_" * 1_000_000) is None
