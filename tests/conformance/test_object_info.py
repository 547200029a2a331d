"""How nodes describe themselves: the part of the description that prompts are built and checked by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.wire import Wire

CORE_NODES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("core_nodes.json").read_text())
COMMON_KEYS = {
    "input",
    "input_order",
    "output",
    "output_is_list",
    "output_name",
    "name",
    "display_name",
    "description",
    "python_module",
    "category",
    "output_node",
}


async def described(wire: Wire, class_type: str) -> dict[str, Any]:
    answer = await wire.get(f"/object_info/{class_type}")
    assert (answer.status, answer.body.keys()) == (200, {class_type})
    info: dict[str, Any] = answer.body[class_type]
    return info


def choices(declaration: list[Any]) -> list[Any] | None:
    """What a combo offers, in either of the two forms it is written in; None for any other input."""
    if isinstance(declaration[0], list):
        return declaration[0]
    if declaration[0] == "COMBO":
        offered: list[Any] = declaration[1]["options"]
        return offered
    return None


def essence(declaration: list[Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Type, default and bounds of an input; the choices only where they belong to the node, not to the installation."""
    options = declaration[1] if len(declaration) > 1 else {}
    offered = choices(declaration)
    found: dict[str, Any] = {"type": declaration[0] if offered is None else "COMBO"}
    found |= {key: options[key] for key in ("default", "min", "max") if key in options}
    if offered is not None and "choices" in expected:
        found["choices"] = offered
    return found


@pytest.mark.parametrize("class_type", CORE_NODES)
async def test_a_core_node_declares_these_inputs_and_outputs(wire: Wire, class_type: str) -> None:
    expected, info = CORE_NODES[class_type], await described(wire, class_type)
    assert info.keys() >= COMMON_KEYS
    assert info["name"] == class_type
    for key in ("output", "output_is_list", "output_name", "output_node"):
        assert info[key] == expected[key], key
    for section in ("required", "optional"):
        inputs = info["input"].get(section, {})
        wanted = expected["input"].get(section, {})
        assert {name: essence(inputs[name], wanted.get(name, {})) for name in inputs} == wanted
        assert info["input_order"].get(section, []) == list(inputs) == list(wanted)


async def test_an_unknown_class_is_described_by_nothing(wire: Wire) -> None:
    answer = await wire.get("/object_info/NoSuchNode")
    assert (answer.status, answer.body) == (200, {})


async def test_the_whole_description_holds_every_core_node(wire: Wire) -> None:
    everything = (await wire.get("/object_info")).body
    assert everything.keys() >= CORE_NODES.keys()
    assert everything["KSampler"] == await described(wire, "KSampler")


async def test_an_input_without_options_is_written_as_its_type_alone(wire: Wire) -> None:
    assert (await described(wire, "ImageInvert"))["input"]["required"]["image"] == ["IMAGE"]
    assert (await described(wire, "ImageCrop"))["input"]["required"]["image"] == ["IMAGE", {}]


async def test_choices_come_in_two_forms(wire: Wire) -> None:
    listed = (await described(wire, "ImageScale"))["input"]["required"]["crop"]
    assert listed == [["disabled", "center"]]
    kind, options = (await described(wire, "SaveWEBM"))["input"]["required"]["codec"]
    assert (kind, options["options"], options["multiselect"]) == ("COMBO", ["vp9", "av1"], False)


async def test_hidden_inputs_come_in_two_forms(wire: Wire) -> None:
    older = (await described(wire, "SaveImage"))["input"]["hidden"]
    newer = (await described(wire, "SaveAnimatedPNG"))["input"]["hidden"]
    assert older == {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
    assert newer == {"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]}


async def test_seeds_are_marked_as_such(wire: Wire) -> None:
    _, options = (await described(wire, "KSampler"))["input"]["required"]["seed"]
    assert options["control_after_generate"] is True
