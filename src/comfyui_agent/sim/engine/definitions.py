"""Node definitions: from our own data file, or from a user's `/object_info`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from comfyui_agent.domain.prompts import natural_key
from comfyui_agent.sim.prompt_queue import Json
from comfyui_agent.sim.settings import Folders

BUNDLED: Json = json.loads(resources.files(__package__).joinpath("definitions.json").read_text(encoding="utf-8"))
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tiff")


@dataclass(frozen=True)
class InputSpec:
    """One declared input of a node."""

    name: str
    section: str
    type: Any
    options: Json

    @property
    def config(self) -> list[Any]:
        return [self.type, self.options]

    @property
    def choices(self) -> list[Any] | None:
        """The values of a combo; None for other types."""
        if isinstance(self.type, list):
            return self.type
        if self.type == "COMBO":
            choices = self.options.get("options", [])
            return choices if isinstance(choices, list) else []
        return None


@dataclass(frozen=True)
class NodeDefinition:
    """One node class, as `/object_info` describes it."""

    name: str
    info: Json
    inputs: dict[str, InputSpec]

    @classmethod
    def from_info(cls, name: str, info: Json) -> NodeDefinition:
        return cls(name, info, specs_of(info["input"]))

    @property
    def output(self) -> list[Any]:
        return list(self.info.get("output") or [])

    @property
    def is_output(self) -> bool:
        return self.info.get("output_node") is True

    @property
    def has_dynamic_inputs(self) -> bool:
        return any(str(spec.type).startswith("COMFY_") for spec in self.inputs.values())

    @property
    def is_sampler(self) -> bool:
        """Whether render time is spent here: the node makes a latent in steps."""
        return "LATENT" in self.output and ("steps" in self.inputs or "sigmas" in self.inputs)


def specs_of(sections: Json) -> dict[str, InputSpec]:
    """The inputs that `required` and `optional` sections declare."""
    inputs = {}
    for section in ("required", "optional"):
        for name, value in (sections.get(section) or {}).items():
            options = value[1] if len(value) > 1 and isinstance(value[1], dict) else {}
            inputs[name] = InputSpec(name, section, value[0], options)
    return inputs


class Definitions:
    """All node classes of a server. Lists of files are read anew each time."""

    def __init__(self, models: dict[str, list[str]], folders: Folders, object_info: Path | None = None) -> None:
        self._models = models
        self._folders = folders
        self._foreign: dict[str, Json] = _read_object_info(object_info) if object_info else {}
        nodes = BUNDLED["nodes"]
        self._own: dict[str, Json] = {"Sleep": nodes["Sleep"]} if object_info else nodes
        self._fixed: dict[str, NodeDefinition] = {}

    def names(self) -> list[str]:
        return [*self._foreign, *(name for name in self._own if name not in self._foreign)]

    def __getitem__(self, name: str) -> NodeDefinition:
        """The definition of a class that is known."""
        definition = self.get(name)
        assert definition is not None
        return definition

    def get(self, name: str) -> NodeDefinition | None:
        known = self._fixed.get(name)
        if known is not None:
            return known
        if name in self._foreign:
            definition = NodeDefinition.from_info(name, self._foreign[name])
        elif name in self._own:
            definition = NodeDefinition.from_info(name, self._expand(name, self._own[name]))
        else:
            return None
        if "$input" not in json.dumps(self._own.get(name, {})):
            self._fixed[name] = definition
        return definition

    def offered_models(self) -> dict[str, list[str]]:
        """Model folders and their files; from the combos of a user's own definitions where those are given."""
        models = {folder: list(files) for folder, files in self._models.items()}
        loaders = {
            "checkpoints": ("CheckpointLoaderSimple", "ckpt_name"),
            "loras": ("LoraLoader", "lora_name"),
            "vae": ("VAELoader", "vae_name"),
            "diffusion_models": ("UNETLoader", "unet_name"),
        }
        for folder, (loader, key) in loaders.items():
            if loader in self._foreign:
                spec = NodeDefinition.from_info(loader, self._foreign[loader]).inputs.get(key)
                models[folder] = [str(choice) for choice in (spec.choices or [])] if spec else []
        return models

    def _expand(self, name: str, compact: Json) -> Json:
        """Our compact notation, written out as ComfyUI would."""
        third = compact.get("schema") == 3
        sections: Json = {}
        for section in ("required", "optional"):
            if section in compact:
                sections[section] = {key: self._fill(value) for key, value in compact[section].items()}
        if "hidden" in compact:
            kinds = {key: key.upper() for key in compact["hidden"]}
            sections["hidden"] = {key: [kind] if third else kind for key, kind in kinds.items()}
        output = compact["output"]
        info: Json = {
            "input": sections,
            "input_order": {section: list(inputs) for section, inputs in sections.items()},
            "output": output,
            "output_is_list": [False] * len(output),
            "output_name": compact.get("output_name", output),
            "name": name,
            "display_name": compact.get("title", None if third else name),
            "description": "",
            "python_module": compact["module"],
            "category": compact["category"],
            "output_node": compact.get("output_node", False),
        }
        if third:
            flags = {key: compact.get(key, False) for key in ("deprecated", "experimental")}
            info |= {"output_matchtypes": None, "output_tooltips": [None] * len(output), **flags, "api_node": False}
        elif compact.get("deprecated"):
            info["deprecated"] = True
        return info

    def _fill(self, value: Any) -> Any:
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
