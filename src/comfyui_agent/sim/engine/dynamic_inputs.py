"""Inputs that depend on a prompt: lists that grow, and choices that bring inputs of their own.

ComfyUI writes them with dots: `images.image0`, `resize_type.width`.
"""

from __future__ import annotations

from typing import Any

from comfyui_agent.sim.engine.definitions import InputSpec, NodeDefinition, specs_of
from comfyui_agent.sim.prompt_queue import Json

GROWING = "COMFY_AUTOGROW_V3"
CHOOSING = "COMFY_DYNAMICCOMBO_V3"


def inputs_for(definition: NodeDefinition, given: Any) -> dict[str, InputSpec]:
    """The inputs of a node, with those that depend on the prompt written out."""
    if not isinstance(given, dict) or not definition.has_dynamic_inputs:
        return definition.inputs
    written_out: dict[str, InputSpec] = {}
    for name, spec in definition.inputs.items():
        if spec.type == GROWING:
            written_out |= _grown(spec, given)
        elif spec.type == CHOOSING:
            written_out[name] = InputSpec(name, "optional", CHOOSING, spec.options)
            written_out |= _chosen(spec, given.get(name))
        else:
            written_out[name] = spec
    return written_out


def _grown(spec: InputSpec, given: Json) -> dict[str, InputSpec]:
    template = specs_of(spec.options.get("template", {}).get("input", {}))
    pattern = next(iter(template.values()), None)
    if pattern is None:
        return {}
    names = [name for name in given if name.startswith(f"{spec.name}.")]
    return {name: InputSpec(name, "optional", pattern.type, pattern.options) for name in names}


def _chosen(spec: InputSpec, choice: Any) -> dict[str, InputSpec]:
    for option in spec.options.get("options", []):
        if option["key"] == choice:
            return {
                f"{spec.name}.{name}": InputSpec(f"{spec.name}.{name}", inner.section, inner.type, inner.options)
                for name, inner in specs_of(option["inputs"]).items()
            }
    return {}
