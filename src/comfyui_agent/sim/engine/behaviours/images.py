"""Nodes that change the size, number or content of pictures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from PIL import Image, ImageChops, ImageOps, ImageSequence

from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine.node_run import Behaviour, NodeRun, Result
from comfyui_agent.sim.engine.values import Images, Masks
from comfyui_agent.sim.prompt_queue import Json
from comfyui_agent.sim.settings import Folders

EDGE = 512
METHODS = {
    "nearest-exact": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "area": Image.Resampling.BOX,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def load(run: NodeRun, inputs: Json) -> Result:
    name = run.folders.annotated(inputs["image"])[0]
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


def empty(_: NodeRun, inputs: Json) -> Result:
    colour = inputs["color"]
    pixel = (colour >> 16 & 255, colour >> 8 & 255, colour & 255)
    frame = Image.new("RGB", (inputs["width"], inputs["height"]), pixel)
    return Result((Images((frame,) * inputs["batch_size"]),))


def scale(_: NodeRun, inputs: Json) -> Result:
    images: Images = inputs["image"]
    width, height = inputs["width"], inputs["height"]
    if width == 0 and height == 0:
        return Result((images,))
    width = width or max(1, round(images.width * height / images.height))
    height = height or max(1, round(images.height * width / images.width))
    method = METHODS[inputs["upscale_method"]]
    if inputs["crop"] == "center":
        return Result((Images(tuple(ImageOps.fit(frame, (width, height), method) for frame in images.frames)),))
    return Result((_each(images, lambda frame: frame.resize((width, height), method)),))


def scale_by(_: NodeRun, inputs: Json) -> Result:
    images: Images = inputs["image"]
    size = (max(1, round(images.width * inputs["scale_by"])), max(1, round(images.height * inputs["scale_by"])))
    return Result((_each(images, lambda frame: frame.resize(size, METHODS[inputs["upscale_method"]])),))


def scale_to_total_pixels(_: NodeRun, inputs: Json) -> Result:
    images: Images = inputs["image"]
    factor = math.sqrt(inputs["megapixels"] * 1024 * 1024 / (images.width * images.height))
    step = inputs["resolution_steps"]
    size = (round(images.width * factor / step) * step, round(images.height * factor / step) * step)
    return Result((_each(images, lambda frame: frame.resize(size, METHODS[inputs["upscale_method"]])),))


def invert(_: NodeRun, inputs: Json) -> Result:
    return Result((_each(inputs["image"], ImageChops.invert),))


def batch(_: NodeRun, inputs: Json) -> Result:
    first: Images = inputs["image1"]
    second: Images = inputs["image2"]
    fitted = tuple(ImageOps.fit(frame, first.frames[0].size) for frame in second.frames)
    return Result((Images(first.frames + fitted),))


def crop(_: NodeRun, inputs: Json) -> Result:
    images: Images = inputs["image"]
    left, top = min(inputs["x"], images.width - 1), min(inputs["y"], images.height - 1)
    right, bottom = min(left + inputs["width"], images.width), min(top + inputs["height"], images.height)
    return Result((_each(images, lambda frame: frame.crop((left, top, right, bottom))),))


def repeat(_: NodeRun, inputs: Json) -> Result:
    return Result((Images(inputs["image"].frames * inputs["amount"]),))


def solid_mask(_: NodeRun, inputs: Json) -> Result:
    return Result((Masks((Image.new("L", (inputs["width"], inputs["height"]), int(inputs["value"] * 255)),)),))


def mask_to_image(_: NodeRun, inputs: Json) -> Result:
    return Result((Images(tuple(frame.convert("RGB") for frame in inputs["mask"].frames)),))


def image_to_mask(_: NodeRun, inputs: Json) -> Result:
    channel = inputs["channel"][0].upper()
    frames = tuple(frame.convert("RGBA").getchannel(channel) for frame in inputs["image"].frames)
    return Result((Masks(frames),))


def _each(images: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    return Images(tuple(change(frame) for frame in images.frames))


BEHAVIOURS: dict[str, Behaviour] = {
    "LoadImage": load,
    "EmptyImage": empty,
    "ImageScale": scale,
    "ImageScaleBy": scale_by,
    "ImageScaleToTotalPixels": scale_to_total_pixels,
    "ImageInvert": invert,
    "ImageBatch": batch,
    "ImageCrop": crop,
    "RepeatImageBatch": repeat,
    "SolidMask": solid_mask,
    "MaskToImage": mask_to_image,
    "ImageToMask": image_to_mask,
}
