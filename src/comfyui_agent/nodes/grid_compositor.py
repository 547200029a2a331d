"""The node that shows a whole batch as one picture. Runs on Python 3.9."""

from __future__ import annotations

from itertools import islice
from typing import Any

from comfyui_agent.domain.batches import slug
from comfyui_agent.nodes.core.batch_state import GridOptions
from comfyui_agent.nodes.core.iteration_state import IterationStateManager
from comfyui_agent.nodes.host import pictures_of
from comfyui_agent.nodes.iterator import CATEGORY
from comfyui_agent.nodes.membership import Membership


class WIGridCompositor:
    """Runs in each member. The last member to end makes the grid."""

    CATEGORY = CATEGORY
    DESCRIPTION = "One labelled picture of all members, made when the last has ended. Those without a picture say why."
    RETURN_TYPES = ()
    FUNCTION = "compose"
    OUTPUT_NODE = True

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:  # noqa: N802 - ComfyUI's name
        return {
            "required": {
                "images": ("IMAGE", {"tooltip": "The member's pictures, best from E3 Save Image. The first is shown."}),
                "iterator": ("WI_ITERATOR", {"tooltip": "The E3 Iterator whose batch is shown."}),
            },
            "optional": {
                "columns": (
                    "STRING",
                    {"default": "", "tooltip": "The parameter that goes across; empty: the last."},
                ),
                "rows": ("STRING", {"default": "", "tooltip": "The parameter that goes down; empty: the one before."}),
                "cell_pixels": (
                    "INT",
                    {
                        "default": 0,
                        "min": 0,
                        "max": 4096,
                        "tooltip": "The longest side of a cell; 0: as large as the pictures are, and the grid can be.",
                    },
                ),
                "title": ("STRING", {"default": "", "tooltip": "Stands above the grid; empty: the id of the batch."}),
                "filename_prefix": (
                    "STRING",
                    {
                        "default": GridOptions.filename_prefix,
                        "tooltip": "Where the grid goes, in ComfyUI's output folder. A batch adds its folder.",
                    },
                ),
            },
            "hidden": {"unique_id": "UNIQUE_ID"},
        }

    def compose(
        self,
        images: Any,
        iterator: Membership | None = None,
        columns: str = "",
        rows: str = "",
        cell_pixels: int = 0,
        title: str = "",
        filename_prefix: str = GridOptions.filename_prefix,
        unique_id: str | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        if iterator is None:  # no batch: there is nothing to compare
            return {"ui": {"images": []}}
        node_id = str(unique_id)
        manager = IterationStateManager.instance()
        if manager.shows_its_own(iterator.batch_id, node_id):
            prefix = iterator.prefix(f"e3_grid/{slug(node_id)}")
            shown = [manager.host.save(picture, prefix, "temp", {}) for picture in islice(pictures_of(images), 1)]
            if shown:
                values = {"values": dict(iterator.values)}
                manager.report(iterator.batch_id, iterator.index, node_id, shown, values)
        options = GridOptions(columns, rows, cell_pixels, title, filename_prefix)
        grid = manager.grid_for(iterator.batch_id, node_id, options) or ()
        return {"ui": {"images": [dict(image) for image in grid]}}
