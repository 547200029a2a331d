"""Node definitions: from our own data file, or from a user's `/object_info`."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.sim.engine.older_definitions import NEWER_FOLDERS, older_definition
from comfyui_agent.sim.settings import Folders
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.prompts import Json

BUNDLED: Json = json.loads(resources.files(__package__).joinpath("definitions.json").read_text(encoding="utf-8"))
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tiff")
GROWING = "COMFY_AUTOGROW_V3"
CHOOSING = "COMFY_DYNAMICCOMBO_V3"
LOADERS = {
    "checkpoints": ("CheckpointLoaderSimple", "ckpt_name"),
    "loras": ("LoraLoader", "lora_name"),
    "vae": ("VAELoader", "vae_name"),
    "diffusion_models": ("UNETLoader", "unet_name"),
}


@dataclass(frozen=True)
class InputSpec:
    name: str
    section: str
    type: Any
    options: Json

    @property
    def choices(self) -> list[Any] | None:
        """The values of a combo; None for other types."""
        if isinstance(self.type, list):
            return self.type
        if self.type == "COMBO":
            choices = self.options.get("options", [])
            return choices if isinstance(choices, list) else []
        return None


class NodeDefinition:
    def __init__(self, name: str, info: Json) -> None:
        self.name = name
        self.info = info
        self.inputs = _specs(info["input"])
        self.output: list[Any] = info["output"]
        self.is_output = info.get("output_node") is True
        self.is_sampler = "LATENT" in self.output and ("steps" in self.inputs or "sigmas" in self.inputs)
        """Whether render time is spent here: the node makes a latent in steps."""

    def inputs_for(self, given: Any) -> dict[str, InputSpec]:
        """The inputs, with those that depend on a prompt written out, as in `images.image0` and `resize_type.width`."""
        return _written_out(self.inputs, given) if isinstance(given, dict) else self.inputs


def _written_out(inputs: dict[str, InputSpec], given: Json) -> dict[str, InputSpec]:
    """A choice that brings inputs of its own is never missed. Among those may be further choices."""
    written_out: dict[str, InputSpec] = {}
    for name, spec in inputs.items():
        if spec.type == GROWING:
            template = _specs(spec.options.get("template", {}).get("input", {}))
            for pattern in list(template.values())[:1]:
                grown = (key for key in given if key.startswith(f"{name}."))
                written_out |= {key: replace(pattern, name=key, section="optional") for key in grown}
        elif spec.type == CHOOSING:
            written_out[name] = replace(spec, section="optional")
            for option in spec.options.get("options", []):
                if option["key"] == given.get(name):
                    written_out |= _written_out(_specs(option["inputs"], f"{name}."), given)
        else:
            written_out[name] = spec
    return written_out


def _specs(sections: Json, prefix: str = "") -> dict[str, InputSpec]:
    """The inputs that `required` and `optional` sections declare."""
    inputs = {}
    for section in ("required", "optional"):
        for key, value in (sections.get(section) or {}).items():
            options = value[1] if len(value) > 1 and isinstance(value[1], dict) else {}
            inputs[prefix + key] = InputSpec(prefix + key, section, value[0], options)
    return inputs


class Definitions:
    """All node classes of a server. Lists of input files are read anew each time."""

    def __init__(
        self, models: dict[str, list[str]], folders: Folders, dialect: Dialect, object_info: Path | None = None
    ) -> None:
        self._models = models
        self._folders = folders
        self._own: Json = BUNDLED["nodes"]
        if not dialect.newer_definitions:
            self._own = {name: older_definition(name, info) for name, info in self._own.items()}
            self._models = {name: files for name, files in models.items() if name not in NEWER_FOLDERS}
        foreign = _read_object_info(object_info) if object_info else {}
        own = {"Sleep": self._own["Sleep"]} if object_info else self._own
        self._foreign = {name: NodeDefinition(name, info) for name, info in foreign.items()}
        self._fixed = {name: self._bundled(name) for name in own} | self._foreign
        self._lists_input = {name for name in own if "$input" in json.dumps(own[name])} - foreign.keys()
        self.names = [*foreign, *(name for name in own if name not in foreign)]

    def __getitem__(self, name: str) -> NodeDefinition:
        definition = self.get(name)
        assert definition is not None
        return definition

    def get(self, name: str) -> NodeDefinition | None:
        return self._bundled(name) if name in self._lists_input else self._fixed.get(name)

    def offered_models(self) -> dict[str, list[str]]:
        """Model folders and their files; from the combos of a user's own definitions where those are given."""
        models = {folder: list(files) for folder, files in self._models.items()}
        for folder, (loader, key) in LOADERS.items():
            if loader in self._foreign:
                spec = self._foreign[loader].inputs.get(key)
                models[folder] = [str(choice) for choice in (spec.choices or [])] if spec else []
        return models

    def _bundled(self, name: str) -> NodeDefinition:
        return NodeDefinition(name, self._fill(self._own[name]))

    def _fill(self, value: Any) -> Any:
        """Put lists in place of names such as `$samplers` and `$checkpoints`."""
        if isinstance(value, str) and value.startswith("$"):
            return self._list(value)
        if isinstance(value, list):
            return [self._fill(item) for item in value]
        if isinstance(value, dict):
            return {key: self._fill(item) for key, item in value.items()}
        return value

    def _list(self, name: str) -> list[str]:
        if name in BUNDLED["lists"]:
            return list(BUNDLED["lists"][name])
        if name == "$input":
            files = self._folders.input.iterdir() if self._folders.input.is_dir() else ()
            return sorted(file.name for file in files if file.is_file() and file.suffix.lower() in PICTURES)
        files_of = self._models.get(name[1:], [])
        return [*files_of, "pixel_space"] if name == "$vae" else list(files_of)


def model_folders(models: tuple[str, ...]) -> dict[str, list[str]]:
    """Sort `NAME` and `FOLDER/NAME` into ComfyUI's model folders; a bare name is a checkpoint."""
    folders: dict[str, list[str]] = {name: [] for name in BUNDLED["model_folders"]}
    for model in models:
        if not model.strip() or model.endswith("/"):
            raise ValueError(f"{model!r} names no model: give NAME or FOLDER/NAME such as loras/ink.safetensors")
        head, slash, tail = model.partition("/")
        if slash and head in folders:
            folders[head].append(tail)
        else:
            folders["checkpoints"].append(model)
    return {name: sorted(set(files), key=natural_key) for name, files in folders.items()}


def _read_object_info(path: Path) -> dict[str, Json]:
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"cannot read node definitions from {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is not JSON: save the answer of GET /object_info of your server there") from None
    if not isinstance(document, dict) or not document:
        raise ValueError(f"{path} does not hold node definitions: save the answer of GET /object_info there")
    for name, info in document.items():
        if not _is_definition(info):
            raise ValueError(f"{path} has no usable definition of {name!r}: save the answer of GET /object_info there")
    return document


def _is_definition(info: Any) -> bool:
    if not isinstance(info, dict) or not isinstance(info.get("input"), dict):
        return False
    sections = [info["input"].get(section) or {} for section in ("required", "optional")]
    return isinstance(info.get("output"), list) and all(
        isinstance(section, dict) and all(isinstance(spec, list) and spec for spec in section.values())
        for section in sections
    )
