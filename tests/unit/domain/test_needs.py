"""What a job needs of a server, read from its graph."""

from __future__ import annotations

from typing import Any

import pytest

from comfyui_agent.domain.jobs import Template
from comfyui_agent.domain.needs import Needs, model_names, needs_of_template

GRAPH = {
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "base.safetensors"}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 768, "batch_size": 2}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": "a fox", "clip": ["4", 1]}},
    "7": {"class_type": "LoadImage", "inputs": {"image": "fox.png"}},
    "10": {"class_type": "UNETLoader", "inputs": {"unet_name": "flux.gguf", "weight_dtype": "default"}},
    "11": {"class_type": "UpscaleWith", "inputs": {"model": "4x.pth"}},
}


def needs(**inputs: Any) -> Needs:
    return needs_of_template(Template.of(GRAPH), {key.replace("_", ".", 1)[1:]: value for key, value in inputs.items()})


def test_models_are_what_loaders_load_and_model_files_anywhere() -> None:
    values = [model.value for model in needs().models]
    assert sorted(values) == ["4x.pth", "base.safetensors", "default", "flux.gguf"]
    assert model_names(needs().models) == "base.safetensors + flux.gguf + 4x.pth"


def test_classes_and_size_are_known() -> None:
    assert needs().classes == tuple(sorted({node["class_type"] for node in GRAPH.values()}))
    assert needs().pixels == 512 * 768 * 2


@pytest.mark.parametrize(
    ("inputs", "is_same_key", "is_same_set"),
    [
        ({"n6_text": "a wolf"}, True, True),
        ({"n7_image": "wolf.png"}, True, True),
        ({"n5_width": 1024}, False, True),
        ({"n5_width": 512}, True, True),
        ({"n4_ckpt_name": "other.safetensors"}, False, False),
        ({"n10_weight_dtype": "fp8"}, False, False),
        ({"n6_text": "the file style.safetensors"}, False, False),
    ],
)
def test_what_jobs_of_one_workflow_share(inputs: dict[str, Any], is_same_key: bool, is_same_set: bool) -> None:
    other = needs(**inputs)
    assert (other.key == needs().key, other.model_set == needs().model_set) == (is_same_key, is_same_set)


def test_other_workflows_with_the_same_models_are_one_set() -> None:
    other = GRAPH | {"12": {"class_type": "SaveImage", "inputs": {"filename_prefix": "x"}}}
    found = needs_of_template(Template.of(other), {})
    assert (found.model_set == needs().model_set, found.key == needs().key) == (True, False)


def test_a_graph_without_models_has_the_empty_set() -> None:
    found = needs_of_template(
        Template.of({"1": {"class_type": "EmptyImage", "inputs": {"width": 64, "height": 64}}}), {}
    )
    assert (found.model_set, found.pixels, model_names(found.models)) == ("", 4096, "no model")


@pytest.mark.parametrize("value", [["3", 0], {"a": 1}, None, 2**70, -5, True, "many"])
def test_odd_sizes_do_no_harm(value: Any) -> None:
    assert 0 <= needs(n5_width=value).pixels < 2**63
