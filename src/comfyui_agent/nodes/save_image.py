"""The node that saves and reports the pictures of a member. Runs on Python 3.9."""

from __future__ import annotations

from typing import Any

from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.host import pictures_of
from comfyui_agent.nodes.iterator import CATEGORY
from comfyui_agent.nodes.membership import Membership


class WISaveImage:
    """Outside of a batch it saves like ComfyUI's own node."""

    CATEGORY = CATEGORY
    DESCRIPTION = "Saves pictures; those of a batch in a folder of its own, with their values in their names."
    RETURN_TYPES = ("IMAGE",)
    RETURN_NAMES = ("images",)
    OUTPUT_TOOLTIPS = ("The same pictures, for an E3 Grid behind it.",)
    FUNCTION = "save"
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {
            "required": {
                "images": ("IMAGE", {"tooltip": "The pictures to save."}),
                "filename_prefix": (
                    "STRING",
                    {
                        "default": "E3/image",
                        "tooltip": "Where they go in the output folder. A batch adds a folder of its own.",
                    },
                ),
            },
            "optional": {
                "iterator": ("WI_ITERATOR", {"tooltip": "The E3 Iterator whose batch these pictures are of."}),
            },
            "hidden": {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO", "unique_id": "UNIQUE_ID"},
        }

    def save(
        self,
        images: Any,
        filename_prefix: str = "E3/image",
        iterator: Membership | None = None,
        prompt: Any = None,
        extra_pnginfo: Any = None,
        unique_id: str | None = None,
    ) -> dict[str, Any]:
        manager = IterationStateManager.instance()
        prefix = filename_prefix if iterator is None else iterator.prefix(filename_prefix)
        texts = {} if prompt is None else {"prompt": prompt}
        texts.update(extra_pnginfo or {})
        pictures = enumerate(pictures_of(images))
        saved = [manager.host.save(picture, prefix, "output", texts, number) for number, picture in pictures]
        if iterator is not None:
            values = {"values": dict(iterator.values)}
            manager.report(iterator.batch_id, iterator.index, str(unique_id), saved, values)
        return {"ui": {"images": [dict(image) for image in saved]}, "result": (images,)}
