"""Node definitions: our own with their lists filled in, and the answer of someone's own server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comfyui_agent.sim.engine.definitions import Definitions, NodeDefinition, model_folders
from comfyui_agent.sim.settings import Folders
from comfyui_agent.wire.dialect import IMITATED, Dialect

MODELS = ("ink.safetensors", "loras/thin.safetensors")
BLUR = {
    "input": {"required": {"image": ["IMAGE"], "radius": ["INT", {"default": 1, "min": 1}]}},
    "output": ["IMAGE"],
    "name": "MyBlur",
    "output_node": False,
}


def definitions(tmp_path: Path, object_info: Path | None = None, version: str = IMITATED) -> Definitions:
    return Definitions(model_folders(MODELS), Folders.below(tmp_path / "output"), Dialect(version), object_info)


def known(definitions: Definitions, name: str) -> NodeDefinition:
    definition = definitions.get(name)
    assert definition is not None
    return definition


def saved(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_definition_of_ours_is_as_a_server_gives_it(tmp_path: Path) -> None:
    assert known(definitions(tmp_path), "CheckpointLoaderSimple").info == {
        "input": {
            "required": {"ckpt_name": [["ink.safetensors"], {"tooltip": "The name of the checkpoint (model) to load."}]}
        },
        "input_order": {"required": ["ckpt_name"]},
        "is_input_list": False,
        "output": ["MODEL", "CLIP", "VAE"],
        "output_is_list": [False, False, False],
        "output_name": ["MODEL", "CLIP", "VAE"],
        "output_tooltips": [
            "The model used for denoising latents.",
            "The CLIP model used for encoding text prompts.",
            "The VAE model used for encoding and decoding images to and from latent space.",
        ],
        "name": "CheckpointLoaderSimple",
        "display_name": "Load Checkpoint",
        "description": "Loads a diffusion model checkpoint, diffusion models are used to denoise latents.",
        "python_module": "nodes",
        "category": "model/loaders",
        "output_node": False,
        "has_intermediate_output": False,
        "search_aliases": ["load model", "checkpoint", "model loader", "load checkpoint", "ckpt", "model"],
    }


def test_an_older_server_tells_less_of_its_nodes(tmp_path: Path) -> None:
    own = definitions(tmp_path, version="0.7")
    loader, video = known(own, "CheckpointLoaderSimple").info, known(own, "CreateVideo").info
    assert (loader["category"], "search_aliases" in loader, "is_input_list" in loader) == ("loaders", False, False)
    assert list(video["input"]["optional"]) == video["input_order"]["optional"] == ["audio"]
    assert known(own, "SaveVideo").info["output"] == []
    assert "background_removal" not in own.offered_models()
    assert "background_removal" in definitions(tmp_path).offered_models()


@pytest.mark.parametrize("version", ["0.33", "0.7"])
def test_every_definition_of_ours_is_whole(tmp_path: Path, version: str) -> None:
    own = definitions(tmp_path, version=version)
    for name in own.names:
        info = known(own, name).info
        assert info["name"] == name
        assert len(info["output"]) == len(info["output_name"]) == len(info["output_is_list"])
        assert {section: list(inputs) for section, inputs in info["input"].items()} == info["input_order"]
        assert "$" not in json.dumps(info["input"]), "a list was not filled in"


def test_nodes_of_the_third_schema_have_its_fields(tmp_path: Path) -> None:
    info = known(definitions(tmp_path), "FluxGuidance").info
    assert {"output_matchtypes", "output_tooltips", "deprecated", "experimental", "api_node"} <= set(info)


def test_lists_of_files_are_read_anew(tmp_path: Path) -> None:
    own = definitions(tmp_path)
    folder = Folders.below(tmp_path / "output").input
    assert known(own, "LoadImage").inputs["image"].choices == []
    folder.mkdir(parents=True)
    for name in ("b.png", "a.JPG", "notes.txt"):
        (folder / name).touch()
    assert known(own, "LoadImage").inputs["image"].choices == ["a.JPG", "b.png"]


def test_an_unknown_class_has_no_definition(tmp_path: Path) -> None:
    assert definitions(tmp_path).get("NoSuchNode") is None


def test_definitions_of_ones_own_take_the_place_of_ours(tmp_path: Path) -> None:
    own = definitions(tmp_path, saved(tmp_path, {"MyBlur": BLUR}))
    assert own.names == ["MyBlur", "Sleep"]
    assert known(own, "MyBlur").info == BLUR
    assert own.get("KSampler") is None


def test_the_models_of_ones_own_loaders_are_offered(tmp_path: Path) -> None:
    loader = {"input": {"required": {"ckpt_name": [["mine.safetensors"], {}]}}, "output": ["MODEL", "CLIP", "VAE"]}
    newer = {"input": {"required": {"lora_name": ["COMBO", {"options": ["my.safetensors"]}]}}, "output": ["MODEL"]}
    own = definitions(tmp_path, saved(tmp_path, {"CheckpointLoaderSimple": loader, "LoraLoader": newer}))
    assert own.offered_models()["checkpoints"] == ["mine.safetensors"]
    assert own.offered_models()["loras"] == ["my.safetensors"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_may_be_in_any_encoding_that_shells_write(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(json.dumps({"Ünïcode": BLUR}, ensure_ascii=False).encode(encoding))
    assert definitions(tmp_path, path).names == ["Ünïcode", "Sleep"]


@pytest.mark.parametrize("content", [b"", b"{", b"\x89PNG\r\n", b"<html>", b"[" * 100_000])
def test_a_file_that_is_not_json_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"nodes\.json is not JSON: save the answer of GET /object_info"):
        definitions(tmp_path, path)


@pytest.mark.parametrize("document", [[], {}, None, 5, "x", ["MyBlur"]])
def test_json_that_is_no_object_info_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(ValueError, match="does not hold node definitions"):
        definitions(tmp_path, saved(tmp_path, document))


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [],
        "x",
        {},
        {"input": {}},
        {"output": []},
        {"input": [], "output": []},
        {"input": {}, "output": "IMAGE"},
        {"input": {"required": ["image"]}, "output": []},
        {"input": {"required": {"image": "IMAGE"}}, "output": []},
        {"input": {"required": {"image": []}}, "output": []},
        {"input": {"optional": {"image": None}}, "output": []},
    ],
)
def test_a_broken_definition_is_refused_with_the_name_of_its_node(tmp_path: Path, broken: Any) -> None:
    with pytest.raises(ValueError, match=r"nodes\.json has no usable definition of 'MyBad'"):
        definitions(tmp_path, saved(tmp_path, {"MyBlur": BLUR, "MyBad": broken}))


@pytest.mark.parametrize("sections", [{}, {"required": None}, {"hidden": {"prompt": "PROMPT"}}])
def test_a_node_may_take_nothing(tmp_path: Path, sections: Any) -> None:
    own = definitions(tmp_path, saved(tmp_path, {"Bare": {"input": sections, "output": []}}))
    assert known(own, "Bare").inputs == {}


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot read node definitions from .*nowhere\.json: No such file"):
        definitions(tmp_path, tmp_path / "nowhere.json")


GROWING = NodeDefinition(
    "Batch",
    {
        "input": {
            "required": {
                "images": ["COMFY_AUTOGROW_V3", {"template": {"input": {"required": {"image": ["IMAGE"]}}, "min": 2}}],
                "size": [
                    "COMFY_DYNAMICCOMBO_V3",
                    {
                        "options": [
                            {"key": "exact", "inputs": {"required": {"width": ["INT", {"min": 1}]}}},
                            {"key": "scaled", "inputs": {"optional": {"factor": ["FLOAT", {}]}}},
                        ]
                    },
                ],
                "name": ["STRING", {}],
            }
        },
        "output": ["IMAGE"],
    },
)


def test_a_growing_input_is_as_long_as_a_prompt_makes_it() -> None:
    specs = GROWING.inputs_for({"images.image0": ["1", 0], "images.image7": ["2", 0], "other.image": 1})
    assert [name for name in specs if name.startswith("images")] == ["images.image0", "images.image7"]
    assert (specs["images.image0"].type, specs["images.image0"].section) == ("IMAGE", "optional")


def test_a_choice_brings_its_own_inputs() -> None:
    exact = GROWING.inputs_for({"size": "exact"})
    scaled = GROWING.inputs_for({"size": "scaled"})
    assert (exact["size.width"].section, exact["size.width"].options) == ("required", {"min": 1})
    assert (scaled["size.factor"].section, "size.width" in scaled) == ("optional", False)


def test_a_choice_may_bring_further_choices_which_are_never_missed() -> None:
    inner = ["COMFY_DYNAMICCOMBO_V3", {"options": [{"key": "h264", "inputs": {"required": {"crf": ["FLOAT", {}]}}}]}]
    outer = ["COMFY_DYNAMICCOMBO_V3", {"options": [{"key": "mp4", "inputs": {"required": {"codec": inner}}}]}]
    video = NodeDefinition("Video", {"input": {"required": {"format": outer}}, "output": []})
    sections = {name: spec.section for name, spec in video.inputs_for({"format": "mp4"}).items()}
    assert sections == {"format": "optional", "format.codec": "optional"}
    assert "format.codec.crf" in video.inputs_for({"format": "mp4", "format.codec": "h264"})


@pytest.mark.parametrize("choice", ["neither", None, ["1", 0], 5])
def test_a_choice_that_there_is_not_brings_nothing(choice: Any) -> None:
    assert set(GROWING.inputs_for({"size": choice})) == {"size", "name"}


def test_plain_nodes_have_the_inputs_they_declare() -> None:
    plain = NodeDefinition("MyBlur", BLUR)
    assert plain.inputs_for({"images.image0": 1}) == plain.inputs
