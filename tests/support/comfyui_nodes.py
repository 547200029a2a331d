"""Nodes for prompts in the stand-in for ComfyUI. An IMAGE is a list of Pillow pictures there."""

from __future__ import annotations

import threading
from typing import Any

from PIL import Image

Painted = tuple[list[Image.Image]]


class Colour:
    """A picture of one colour. The optional inputs are there to be driven."""

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "paint"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        size = ("INT", {"default": 8, "min": 1, "max": 4096})
        colour = ("INT", {"default": 0, "min": 0, "max": 0xFFFFFF})
        return {
            "required": {"colour": colour, "width": size, "height": size},
            "optional": {"strength": ("FLOAT", {"default": 1.0}), "note": ("STRING", {"default": ""})},
        }

    def paint(self, colour: int, width: int, height: int, **_: Any) -> Painted:
        return ([Image.new("RGB", (width, height), (colour >> 16, colour >> 8 & 0xFF, colour & 0xFF))],)


class Fails(Colour):
    """Raises when the colour is the one in `at`."""

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        types = super().INPUT_TYPES()
        types["required"]["at"] = ("INT", {"default": -1})
        return types

    def paint(self, colour: int, width: int, height: int, at: int = -1, **_: Any) -> Painted:
        if colour == at:
            raise ValueError(f"the colour is {colour}")
        return super().paint(colour, width, height)


class InterruptProcessingException(Exception):
    pass


def blocking(unblocked: threading.Event, interrupted: threading.Event) -> type[Colour]:
    """A node that paints once it is unblocked, unless it is interrupted."""

    class Blocks(Colour):
        def paint(self, colour: int, width: int, height: int, **_: Any) -> Painted:
            while not unblocked.wait(0.002):
                if interrupted.is_set():
                    raise InterruptProcessingException
            return super().paint(colour, width, height)

    return Blocks


def deaf(begun: threading.Event, unblocked: threading.Event) -> type[Colour]:
    """A node that sets one event, paints once the other is set, and ignores interrupts."""

    class Deaf(Colour):
        def paint(self, colour: int, width: int, height: int, **_: Any) -> Painted:
            begun.set()
            unblocked.wait(60)
            return super().paint(colour, width, height)

    return Deaf


def saving(save_image_path: Any, output: str) -> type[Any]:
    """ComfyUI's own save node."""

    class Save:
        RETURN_TYPES = ()
        FUNCTION = "save"
        OUTPUT_NODE = True

        @classmethod
        def INPUT_TYPES(cls) -> dict[str, Any]:
            return {"required": {"images": ("IMAGE",), "filename_prefix": ("STRING", {"default": "ComfyUI"})}}

        def save(self, images: list[Image.Image], filename_prefix: str) -> dict[str, Any]:
            folder, name, counter, subfolder, _ = save_image_path(filename_prefix, output)
            file = f"{name}_{counter:05}_.png"
            images[0].save(f"{folder}/{file}")
            return {"ui": {"images": [{"filename": file, "subfolder": subfolder, "type": "output"}]}}

    return Save
