"""Pictures: loaded from a file, and changed in size, number or content."""

from __future__ import annotations

import hashlib
import math
import struct

from PIL import Image, ImageChops, ImageOps, ImageSequence

from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine.values import Images, Masks, NodeRun, Result
from comfyui_agent.sim.settings import Folders
from comfyui_agent.wire.places import split_kind
from comfyui_agent.wire.prompts import Json

EDGE = 512
METHODS = {
    "nearest-exact": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "area": Image.Resampling.BOX,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def load(run: NodeRun, inputs: Json) -> Result:
    name = split_kind(inputs["image"])[0]
    path = run.folders.locate(inputs["image"])
    if (path is None or not path.exists()) and inputs["image"] in (run.definition.inputs["image"].choices or []):
        stand_in = paint(Recipe(words=name), EDGE, EDGE)
        return Result((Images((stand_in,)), Masks((Image.new("L", stand_in.size),))))
    if path is None:
        raise ValueError(f"Invalid file path: {name!r}")
    with Image.open(path) as file:
        frames = tuple(ImageOps.exif_transpose(frame).convert("RGBA") for frame in ImageSequence.Iterator(file))
    same_size = tuple(frame for frame in frames if frame.size == frames[0].size)
    masks = tuple(ImageChops.invert(frame.getchannel("A")) for frame in same_size)
    return Result((Images(tuple(frame.convert("RGB") for frame in same_size)), Masks(masks)))


def file_fingerprint(folders: Folders, value: object) -> str:
    """The hash of a file. A picture whose hash is another is loaded again."""
    path = folders.locate(str(value))
    if path is None:
        raise ValueError(f"Invalid file path: {value!r}")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def empty(inputs: Json) -> Images:
    colour = inputs["color"]
    pixel = (colour >> 16 & 255, colour >> 8 & 255, colour & 255)
    return Images((Image.new("RGB", (inputs["width"], inputs["height"]), pixel),) * inputs["batch_size"])


def scale(inputs: Json) -> Images:
    images: Images = inputs["image"]
    old_width, old_height = images.size
    width, height = inputs["width"], inputs["height"]
    if width == 0 and height == 0:
        return images
    width = width or max(1, round(old_width * height / old_height))
    height = height or max(1, round(old_height * width / old_width))
    if inputs["crop"] == "center":
        return images.each(lambda frame: ImageOps.fit(frame, (width, height), METHODS[inputs["upscale_method"]]))
    return _resized(inputs, width, height)


def scale_by(inputs: Json) -> Images:
    width, height = (max(1, round(edge * inputs["scale_by"])) for edge in inputs["image"].size)
    return _resized(inputs, width, height)


def scale_to_total_pixels(inputs: Json) -> Images:
    width, height = inputs["image"].size
    factor = math.sqrt(inputs["megapixels"] * 1024 * 1024 / (width * height))
    step = inputs["resolution_steps"]
    return _resized(inputs, round(width * factor / step) * step, round(height * factor / step) * step)


def _resized(inputs: Json, width: int, height: int) -> Images:
    images: Images = inputs["image"]
    return images.each(lambda frame: frame.resize((width, height), METHODS[inputs["upscale_method"]]))


def invert(inputs: Json) -> Images:
    images: Images = inputs["image"]
    return images.each(lambda frame: frame.point(INVERTED * 3))


def _single(number: float) -> float:
    """A number in single precision."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


INVERTED = [int(_single(255 * _single(1 - _single(value / 255)))) for value in range(256)]
"""Pixels are numbers from 0 to 1 until they are saved, which cuts off what is behind the point: many lose one here."""


def batch(inputs: Json) -> Images:
    first, second = inputs["image1"], inputs["image2"]
    fitted = second.each(lambda frame: ImageOps.fit(frame, first.size))
    return Images(first.frames + fitted.frames)


def crop(inputs: Json) -> Images:
    images: Images = inputs["image"]
    width, height = images.size
    left, top = min(inputs["x"], width - 1), min(inputs["y"], height - 1)
    right, bottom = min(left + inputs["width"], width), min(top + inputs["height"], height)
    return images.each(lambda frame: frame.crop((left, top, right, bottom)))


def channel_mask(inputs: Json) -> Masks:
    channel = inputs["channel"][0].upper()
    return Masks(tuple(frame.convert("RGBA").getchannel(channel) for frame in inputs["image"].frames))
