"""Small workflows in UI format, and the definitions that they need."""

from __future__ import annotations

from typing import Any

COMBO = ["COMBO", {"options": ["a", "b"]}]
FORMATS = [
    {"key": "mp4", "inputs": {"required": {"codec": ["COMFY_DYNAMICCOMBO_V3", {"options": [
        {"key": "h264", "inputs": {"required": {"quality": ["INT", {"default": 5}]}}},
        {"key": "copy", "inputs": {}},
    ]}]}, "optional": {"cover": ["IMAGE", {}]}}},
    {"key": "gif", "inputs": {"required": {"loop": ["BOOLEAN", {"default": True}]}}},
]  # fmt: skip


def definition(required: dict[str, Any], *outputs: str, optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"input": {"required": required, "optional": optional or {}}, "output": list(outputs), "display_name": ""}


DEFINITIONS: dict[str, Any] = {
    "Source": definition({"text": ["STRING", {"default": "x", "multiline": True, "dynamicPrompts": True}]}, "IMAGE"),
    "Sampler": definition({"image": ["IMAGE"], "seed": ["INT", {"default": 0}], "mode": [["a", "b"], {}]}, "IMAGE"),
    "Mixed": definition({"mask": ["MASK"], "image": ["IMAGE"], "mix": ["FLOAT", {"default": 0.5}]}, "IMAGE", "MASK"),
    "Forced": definition({"size": ["INT", {"forceInput": True}], "steps": ["INT", {"default": 20}]}, "INT"),
    "LoadImage": definition({"image": [["in.png"], {"image_upload": True}]}, "IMAGE", "MASK"),
    "Boxes": definition({"boxes": ["COLORS", {}], "after": ["STRING", {}]}, "IMAGE"),
    "SaveVideo": definition({"image": ["IMAGE"], "format": ["COMFY_DYNAMICCOMBO_V3", {"options": FORMATS}]}),
    "Batch": definition(
        {
            "images": [
                "COMFY_AUTOGROW_V3",
                {"template": {"input": {"required": {"i": ["IMAGE", {}]}}, "prefix": "image"}},
            ]
        },
        "IMAGE",
    ),
    "SaveImage": definition({"images": ["IMAGE"], "filename_prefix": ["STRING", {"default": "ComfyUI"}]}),
    "CustomCombo": definition({"choice": ["COMBO", {"options": []}]}, "STRING"),
    "Webcam": definition({"image": ["WEBCAM", {}]}, "IMAGE"),
}


def slot(name: str, kind: str = "IMAGE", link: int | None = None, *, is_field: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "type": kind, "link": link}
    return found | {"widget": {"name": name}} if is_field else found


def node(number: int, kind: str, *inputs: dict[str, Any], values: Any = None, **more: Any) -> dict[str, Any]:
    outputs = [{"name": each, "type": each, "links": []} for each in DEFINITIONS.get(kind, {}).get("output", ["*"])]
    return {"id": number, "type": kind, "inputs": list(inputs), "outputs": outputs, "widgets_values": values} | more


def document(nodes: list[dict[str, Any]], *links: tuple[int, int, int, int], **more: Any) -> dict[str, Any]:
    """A workflow. A link is its id, where it comes from (node, slot) and where it goes (node)."""
    made = [[number, origin, at, target, 0, "IMAGE"] for number, origin, at, target in links]
    return {"version": 0.4, "nodes": nodes, "links": made} | more


def subgraph(
    name: str, nodes: list[dict[str, Any]], *links: tuple[int, int, int, int], inputs: Any = (), outputs: Any = ()
) -> dict[str, Any]:
    """A definition. `inputs` and `outputs` are names with the ids of links; -10 and -20 are the ends in links."""
    keys = ("id", "origin_id", "origin_slot", "target_id")
    ends = [[{"name": each, "type": "IMAGE", "linkIds": ids} for each, ids in side] for side in (inputs, outputs)]
    made = [dict(zip(keys, link, strict=True)) | {"target_slot": 0, "type": "IMAGE"} for link in links]
    return {"id": name, "name": name, "nodes": nodes, "links": made, "inputs": ends[0], "outputs": ends[1]}


CYCLE = document(
    [node(1, "inner")],
    definitions={"subgraphs": [subgraph("inner", [node(1, "outer")]), subgraph("outer", [node(1, "inner")])]},
)
"""Subgraphs that contain each other."""


def pictures(count: int, title: str = "") -> dict[str, Any]:
    """A graph of so many nodes that need nothing."""
    made = {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 3}}
    return {str(number): made | {"_meta": {"title": title}} for number in range(1, count + 1)}


LARGE = {
    "10 MB": pictures(5, "a" * 2_000_000),
    "5,000 nodes": pictures(5_000),
    "5,000 nodes of the editor": document([node(at, "EmptyImage", values=[8, 8, 1, 3]) for at in range(1, 5_001)]),
}
"""Workflows that are nothing but large."""
