"""The node that names an input and its values. Runs on Python 3.9."""

from __future__ import annotations

from typing import Any

from comfyui_agent.nodes.core.parameter_parser import TYPES
from comfyui_agent.nodes.iterator import CATEGORY

EXAMPLES = """1,2,3 · 1..10:2 · 0.5,1.0,..,3.0 · a cat | a dog | a fox · "a, b","c" · random:4 · @prompts.txt (a file in
ComfyUI's input folder, one value on each line)"""


class WIParameter:
    """Read when the prompt is queued. Running it does nothing."""

    CATEGORY = CATEGORY
    DESCRIPTION = "An input of a node, and the values that it takes one after the other. Connect it to an E3 Iterator."
    RETURN_TYPES = ("WI_PARAMETER",)
    RETURN_NAMES = ("parameter",)
    OUTPUT_TOOLTIPS = ("Connect it to an E3 Iterator.",)
    FUNCTION = "name"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {
            "required": {
                "name": ("STRING", {"default": "", "tooltip": "What the grid calls it; empty: the name of the input."}),
                "type": (
                    list(TYPES),
                    {"default": TYPES[0], "tooltip": "What the values are. AUTO: what the input has now."},
                ),
                "values": (
                    "STRING",
                    {"default": "", "multiline": True, "tooltip": " ".join(EXAMPLES.split())},
                ),
                "node_id": (
                    "STRING",
                    {"default": "", "tooltip": "The id of the node that it drives, such as 3 or 98:6."},
                ),
                "input_name": ("STRING", {"default": "", "tooltip": "The input of that node, such as cfg."}),
            }
        }

    def name(self, name: str = "", input_name: str = "", **_: Any) -> tuple[str]:
        return (name or input_name,)
