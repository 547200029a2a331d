"""Node definitions as 0.7 gave them, made from those of 0.33 and what is different."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from comfyui_agent.wire.prompts import Json

DIFFERENCE: Json = json.loads(resources.files(__package__).joinpath("definitions_0_7.json").read_text(encoding="utf-8"))
"""By node, the values at paths such as `input/required/codec`; `$absent` where there is none."""
NEWER_KEYS = {
    "advanced",
    "dev_only",
    "essentials_category",
    "has_intermediate_output",
    "is_input_list",
    "price_badge",
    "search_aliases",
}
NEWER_FOLDERS: list[str] = DIFFERENCE["newer_model_folders"]
OUTPUT_KEYS = ("output", "output_is_list", "output_name", "output_tooltips")


def older_definition(name: str, info: Json) -> Json:
    older: Json = _without_newer_keys(info)
    if older["output_node"]:
        older |= {key: [] for key in OUTPUT_KEYS if key in older}
    for path, value in DIFFERENCE["nodes"].get(name, {}).items():
        *parents, key = path.split("/")
        place = older
        for parent in parents:
            place = place[parent]
        if value == "$absent":
            del place[key]
        else:
            place[key] = value
    return older


def _without_newer_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_newer_keys(item) for key, item in value.items() if key not in NEWER_KEYS}
    if isinstance(value, list):
        return [_without_newer_keys(item) for item in value]
    return value
