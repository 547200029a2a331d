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


def expected_of(wire: Wire, class_type: str) -> dict[str, Any]:
    """What is known of a node; `until` has what was different before a version."""
    expected = {**CORE_NODES[class_type], **CORE_NODES[class_type]["input"]}
    for version, older in CORE_NODES[class_type].get("until", {}).items():
        if not wire.since(version):
            expected |= older
    return expected


@pytest.mark.parametrize("class_type", CORE_NODES)
async def test_a_core_node_declares_these_inputs_and_outputs(wire: Wire, class_type: str) -> None:
    expected, info = expected_of(wire, class_type), await described(wire, class_type)
    assert info.keys() >= COMMON_KEYS
    assert info["name"] == class_type
    for key in ("output", "output_is_list", "output_name", "output_node"):
        assert info[key] == expected[key], key
    for section in ("required", "optional"):
        inputs = info["input"].get(section, {})
        wanted = expected.get(section, {})
        assert {name: essence(inputs[name], wanted.get(name, {})) for name in inputs} == wanted
        assert info["input_order"].get(section, []) == list(inputs) == list(wanted)


@pytest.mark.parametrize(
    ("key", "value", "first"),
    [
        ("search_aliases", [], "0.11"),
        ("is_input_list", False, "0.12"),
        ("essentials_category", "Image Tools", "0.18"),
        ("has_intermediate_output", False, "0.19"),
    ],
)
async def test_newer_versions_tell_more_of_a_node(wire: Wire, key: str, value: Any, first: str) -> None:
    info = await described(wire, "ImageScaleBy")
    assert info.get(key, "absent") == (value if wire.since(first) else "absent")


async def test_inputs_outputs_and_nodes_are_explained(wire: Wire) -> None:
    info = await described(wire, "VAEDecode")
    assert info["description"] == "Decodes latent images back into pixel space images."
    assert info["input"]["required"]["samples"] == ["LATENT", {"tooltip": "The latent to be decoded."}]
    assert info["output_tooltips"] == ["The decoded image."]


async def test_inputs_for_experts_are_marked(wire: Wire) -> None:
    _, options = (await described(wire, "KSamplerAdvanced"))["input"]["required"]["start_at_step"]
    assert options.get("advanced", False) is wire.since("0.15")


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
    older, newer = await described(wire, "SaveImage"), await described(wire, "SaveAnimatedPNG")
    assert older["input"]["hidden"] == {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
    assert newer["input"]["hidden"] == {"prompt": ["PROMPT"], "extra_pnginfo": ["EXTRA_PNGINFO"]}
    for info in (older, newer):
        assert info["input_order"]["hidden"] == list(info["input"]["hidden"]) == ["prompt", "extra_pnginfo"]


async def test_seeds_are_marked_as_such(wire: Wire) -> None:
    _, options = (await described(wire, "KSampler"))["input"]["required"]["seed"]
    assert options["control_after_generate"] is True
