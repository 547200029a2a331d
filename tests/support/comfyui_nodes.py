"""Nodes for prompts of the imitated ComfyUI, and how ComfyUI numbers the files they save.

An IMAGE is a list of Pillow pictures here.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from support.comfyui_queue import Interrupts

Painted = tuple[list[Image.Image]]


class Colour:
    """A picture of one colour. The optional inputs change nothing: they are there to be driven."""

    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "paint"
    CATEGORY = "test"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        size = ("INT", {"default": 8, "min": 1, "max": 4096})
        return {
            "required": {
                "colour": ("INT", {"default": 0, "min": 0, "max": 0xFFFFFF}),
                "width": size,
                "height": size,
            },
            "optional": {
                "strength": ("FLOAT", {"default": 1.0, "min": 0.0, "max": 1.0}),
                "note": ("STRING", {"default": ""}),
                "mirrored": ("BOOLEAN", {"default": False}),
                "pattern": (["plain", "lined", "dotted"],),
            },
        }

    def paint(self, colour: int, width: int, height: int, **_: Any) -> Painted:
        return ([Image.new("RGB", (width, height), (colour >> 16, colour >> 8 & 0xFF, colour & 0xFF))],)


class Fails(Colour):
    """Paints, but raises when the colour is the one in `at`."""

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        types = super().INPUT_TYPES()
        types["required"]["at"] = ("INT", {"default": -1})
        return types

    def paint(self, colour: int, width: int, height: int, at: int = -1, **_: Any) -> Painted:
        if colour == at:
            raise ValueError(f"the colour is {colour}")
        return super().paint(colour, width, height)


def blocking(blocked: threading.Event, unblocked: threading.Event, interrupts: Interrupts) -> type[Colour]:
    """A node that paints once it is unblocked, unless somebody interrupts; `blocked` is set while it waits."""

    class Blocks(Colour):
        def paint(self, colour: int, width: int, height: int, **_: Any) -> Painted:
            blocked.set()
            try:
                while not unblocked.wait(0.002):
                    interrupts.check()
            finally:
                blocked.clear()
            return super().paint(colour, width, height)

    return Blocks


def saving(output: Path) -> type[Any]:
    """A node that writes PNG files with the prompt in them."""

    class Save:
        RETURN_TYPES = ()
        FUNCTION = "save"
        CATEGORY = "test"
        OUTPUT_NODE = True

        @classmethod
        def INPUT_TYPES(cls) -> dict[str, Any]:
            return {
                "required": {"images": ("IMAGE",), "filename_prefix": ("STRING", {"default": "ComfyUI"})},
                "hidden": {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"},
            }

        def save(
            self, images: list[Image.Image], filename_prefix: str, prompt: Any = None, extra_pnginfo: Any = None
        ) -> dict[str, Any]:
            folder, name, counter, subfolder, _ = get_save_image_path(filename_prefix, str(output), *images[0].size)
            text = PngImagePlugin.PngInfo()
            for key, value in {"prompt": prompt, **(extra_pnginfo or {})}.items():
                text.add_text(key, json.dumps(value))
            files = [f"{name}_{number:05}_.png" for number in range(counter, counter + len(images))]
            for file, image in zip(files, images, strict=True):
                image.save(Path(folder, file), pnginfo=text)
            return {"ui": {"images": [{"filename": file, "subfolder": subfolder, "type": "output"} for file in files]}}

    return Save


def get_save_image_path(
    filename_prefix: str, output_dir: str, image_width: int = 0, image_height: int = 0
) -> tuple[str, str, int, str, str]:
    """Folder, name, next free number, subfolder and prefix for `name_00001_.png`, as ComfyUI counts them."""
    values = {"width": str(image_width), "height": str(image_height)}
    moment = time.strftime("%Y %m %d %H %M %S").split()
    values |= zip(("year", "month", "day", "hour", "minute", "second"), moment, strict=True)
    for name, value in values.items():
        filename_prefix = filename_prefix.replace(f"%{name}%", value)
    subfolder, name = os.path.split(os.path.normpath(filename_prefix))
    folder = os.path.join(output_dir, subfolder)  # noqa: PTH118 - text, as ComfyUI hands it on
    if os.path.commonpath((output_dir, os.path.abspath(folder))) != output_dir:
        raise Exception("**** ERROR: Saving image outside the output folder is not allowed.")
    Path(folder).mkdir(parents=True, exist_ok=True)
    numbers = [0]
    for file in os.listdir(folder):
        digits = file[len(name) + 1 :].split("_")[0]
        if file.startswith(f"{name}_") and digits.isdigit():
            numbers.append(int(digits))
    return folder, name, max(numbers) + 1, subfolder, filename_prefix
