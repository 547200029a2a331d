"""Checking a posted prompt as the servers of the fleet would, by their own node definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comfyui_agent.domain.node_classes import loads_from_outside
from comfyui_agent.domain.prompts import inputs_of
from comfyui_agent.sim.engine.definitions import InputSpec, NodeDefinition
from comfyui_agent.sim.engine.validation import ValidationResult, Validator
from comfyui_agent.wire.dialect import Dialect
from comfyui_agent.wire.places import KINDS, split_kind
from comfyui_agent.wire.prompts import Json

ALLOWED_BY_CODE = (
    "value_not_in_list",
    "value_smaller_than_min",
    "value_bigger_than_max",
    "return_type_mismatch",
    "custom_validation_failed",
)
"""What a node that checks its inputs itself (VALIDATE_INPUTS) may allow."""


class FleetDefinitions:
    """Node definitions of the fleet. They are read once for each answer of `/object_info`."""

    def __init__(self) -> None:
        self._info: Json = {}
        self._known: dict[str, NodeDefinition] = {}

    def use(self, info: Json) -> None:
        if info is not self._info:
            self._info, self._known = info, {}

    def get(self, name: str) -> NodeDefinition | None:
        if name not in self._known and name in self._info:
            self._known[name] = NodeDefinition(name, self._info[name])
        return self._known.get(name)

    def __getitem__(self, name: str) -> NodeDefinition:
        found = self.get(name)
        assert found is not None
        return found


class Uploaded:
    """The uploads that a prompt names, as the folders of a server."""

    def __init__(self, kept: Mapping[str, str]) -> None:
        self._kept = kept

    def locate(self, name: str) -> Path | None:
        """A path that is there if the file was uploaded."""
        return Path("/") if upload_path(name) in self._kept else None


def upload_path(value: str) -> str:
    """The path of an upload that an input names: `cat.png`, `sub/cat.png` or `cat.png [input]`."""
    name, kind = split_kind(value)
    return f"{kind or 'input'}/{name.strip()}"


def named_files(prompt: Any) -> dict[str, str]:
    """Every text of a prompt that may name an upload, by its place."""
    found = {}
    for node_id, node in prompt.items() if isinstance(prompt, dict) else ():
        inputs = node.get("inputs") if isinstance(node, dict) else None
        for name, value in inputs.items() if isinstance(inputs, dict) else ():
            if isinstance(value, str) and ("." in value or value.endswith(tuple(f"[{kind}]" for kind in KINDS))):
                found[f"{node_id}.{name}"] = value
    return found


def check_prompt(
    definitions: FleetDefinitions, prompt: Any, targets: Any, uploads: Mapping[str, str], dialect: Dialect
) -> ValidationResult:
    """What a server would answer. Literals are coerced in place, as servers do."""
    validator = Validator(definitions, Uploaded(uploads), dialect, prompt, _in_turn)  # type: ignore[arg-type]
    return validator.check(targets)


def has_own_checks(definitions: FleetDefinitions, prompt: Any) -> bool:
    """Whether only a server can tell: custom nodes may check their inputs by code, and files lie at servers."""
    found = [definitions[node["class_type"]] for node in prompt.values()]
    return any(_is_custom(each) or any(map(_takes_files, each.inputs.values())) for each in found)


def may_be_wrong(definitions: FleetDefinitions, prompt: Any, verdict: ValidationResult) -> bool:
    """Whether all that was found wrong is what a node's own code could allow."""
    return bool(verdict.node_errors) and all(
        error["type"] in ALLOWED_BY_CODE
        and _may_allow(definitions[found["class_type"]], inputs_of(prompt, node_id), error.get("extra_info", {}))
        for node_id, found in verdict.node_errors.items()
        for error in found["errors"]
    )


def output_nodes(definitions: FleetDefinitions, prompt: Any, targets: Any) -> list[str]:
    """The output nodes that a client wants to run."""
    wanted = [node_id for node_id, node in prompt.items() if definitions[node["class_type"]].is_output]
    return wanted if targets is None else [node_id for node_id in wanted if node_id in targets]


def _may_allow(definition: NodeDefinition, inputs: Mapping[str, Any], where: Json) -> bool:
    """Whether a node's own code could allow an input. No file outside of the server's folders is ever allowed."""
    name = where.get("input_name", "")
    spec = definition.inputs.get(name)
    if loads_from_outside(name, inputs.get(name), is_given=True):
        return False
    return _is_custom(definition) or (spec is not None and _takes_files(spec))


def _is_custom(definition: NodeDefinition) -> bool:
    return str(definition.info.get("python_module", "")).startswith("custom_nodes")


def _takes_files(spec: InputSpec) -> bool:
    return any(key.endswith("_upload") and value for key, value in spec.options.items())


def _in_turn(_: str) -> int:
    """Output nodes run in the order of the prompt."""
    return 0
