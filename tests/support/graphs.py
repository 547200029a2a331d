"""Small prompts in API form. Each call gives a picture no earlier call gave, so that no test meets another's cache."""

from __future__ import annotations

import random
import uuid
from typing import Any

from support.wire import Graph, Wire


def node(class_type: str, **inputs: Any) -> dict[str, Any]:
    return {"class_type": class_type, "inputs": inputs}


def fresh_prefix(start: str = "wire") -> str:
    return f"{start}_{uuid.uuid4().hex[:10]}"


def fresh_color() -> int:
    return random.randrange(0x1000000)


def empty_image(width: int = 16, height: int = 16, batch_size: int = 1, color: int | None = None) -> dict[str, Any]:
    color = fresh_color() if color is None else color
    return node("EmptyImage", width=width, height=height, batch_size=batch_size, color=color)


def picture(prefix: str | None = None, **image: Any) -> Graph:
    """EmptyImage "1" saved by SaveImage "2"."""
    prefix = fresh_prefix() if prefix is None else prefix
    return {"1": empty_image(**image), "2": node("SaveImage", images=["1", 0], filename_prefix=prefix)}


def saved_with(class_type: str, prefix: str | None = None, *, batch_size: int = 1, **inputs: Any) -> Graph:
    """EmptyImage "1" given to an output node "2" that takes images, and a prefix unless it is a preview."""
    if class_type != "PreviewImage":
        inputs["filename_prefix"] = fresh_prefix() if prefix is None else prefix
    return {
        "1": empty_image(width=32, height=24, batch_size=batch_size),
        "2": node(class_type, images=["1", 0], **inputs),
    }


def two_pictures() -> Graph:
    """Two independent branches: "1" saved by "2", "3" saved by "4"."""
    first, second = picture(), picture()
    second["2"]["inputs"]["images"] = ["3", 0]
    return {**first, "3": second["1"], "4": second["2"]}


def failing() -> Graph:
    """A picture whose save node raises: its prefix leaves the output folder."""
    return picture(f"../{fresh_prefix()}")


async def checkpoint_name(wire: Wire) -> str:
    """A checkpoint this server offers."""
    info = (await wire.get("/object_info/CheckpointLoaderSimple")).body["CheckpointLoaderSimple"]
    name: str = info["input"]["required"]["ckpt_name"][0][0]
    return name


async def text_to_image(wire: Wire, steps: int = 2) -> Graph:
    """64x64 from a checkpoint that this server has."""
    return sampled(await checkpoint_name(wire), fresh_prefix(), seed=random.randrange(2**48), steps=steps)


def sampled(checkpoint: str, prefix: str, *, seed: int, steps: int, edge: int = 64) -> Graph:
    """From a checkpoint: loader "1", texts "2" and "3", latent "4", sampler "5", decoder "6", save "7"."""
    return {
        "1": node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        "2": node("CLIPTextEncode", text="a lighthouse", clip=["1", 1]),
        "3": node("CLIPTextEncode", text="fog", clip=["1", 1]),
        "4": node("EmptyLatentImage", width=edge, height=edge, batch_size=1),
        "5": node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["3", 0],
            latent_image=["4", 0],
            seed=seed,
            steps=steps,
            cfg=7.0,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
        "7": node("SaveImage", images=["6", 0], filename_prefix=prefix),
    }


async def slow_graph(wire: Wire) -> Graph:
    """A prompt that samples for longer than a test looks at it; the test interrupts it."""
    return await text_to_image(wire, steps=300)
