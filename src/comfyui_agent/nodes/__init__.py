"""E3's nodes for ComfyUI, which takes the names below from the installed folder. Runs on Python 3.9."""

from __future__ import annotations

from comfyui_agent.nodes.node_classes import WIGridCompositor, WIIterator, WIParameter, WISaveImage
from comfyui_agent.nodes.registration import join

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS", "WEB_DIRECTORY"]

NODE_CLASS_MAPPINGS = {
    "WIIterator": WIIterator,
    "WIParameter": WIParameter,
    "WISaveImage": WISaveImage,
    "WIGridCompositor": WIGridCompositor,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "WIIterator": "E3 Iterator",
    "WIParameter": "E3 Parameter",
    "WISaveImage": "E3 Save Image",
    "WIGridCompositor": "E3 Grid",
}
WEB_DIRECTORY: str | None = "./web"

if not join():
    NODE_CLASS_MAPPINGS.clear()
    WEB_DIRECTORY = None
