"""Output nodes: real files, listed under ComfyUI's keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from comfyui_agent.sim.engine.media.flac import write_flac
from comfyui_agent.sim.engine.media.mp4 import write_mp4
from comfyui_agent.sim.engine.media.safetensors import write_latent
from comfyui_agent.sim.engine.media.webm import write_webm
from comfyui_agent.sim.engine.node_run import Behaviour, NodeRun, Result
from comfyui_agent.sim.engine.saving import SavePlace, save_place
from comfyui_agent.sim.engine.values import Audio, Images, Latent, Masks, Video
from comfyui_agent.sim.prompt_queue import Json


def save_image(run: NodeRun, inputs: Json) -> Result:
    return _pictures(run, inputs["images"].frames, run.folders.output, inputs["filename_prefix"], "output", 4)


def preview_image(run: NodeRun, inputs: Json) -> Result:
    return _preview(run, inputs["images"].frames)


def preview_mask(run: NodeRun, inputs: Json) -> Result:
    masks: Masks = inputs["mask"]
    pictures = _preview(run, tuple(frame.convert("RGB") for frame in masks.frames))
    return Result(shown={**(pictures.shown or {}), "animated": [False]})


def preview_text(_: NodeRun, inputs: Json) -> Result:
    source = inputs.get("source")
    if isinstance(source, str | int | float):
        text = str(source)
    elif source is None:
        text = "None"
    else:
        try:
            text = json.dumps(source, indent=4)
        except (TypeError, ValueError):
            text = str(source)
    return Result(shown={"text": [text]})


def save_latent(run: NodeRun, inputs: Json) -> Result:
    latent: Latent = inputs["samples"]
    place = save_place(run.folders.output, inputs["filename_prefix"])
    name = place.next_name("latent")
    shape = (latent.count, 4, max(1, latent.height // 8), max(1, latent.width // 8))
    metadata = {key: json.dumps(value) for key, value in run.picture_metadata.items()}
    write_latent(place.folder / name, shape, latent.recipe.seed if latent.recipe else 0, metadata)
    return Result(shown={"latents": [_listed(name, place, "output")]})


def save_animated_png(run: NodeRun, inputs: Json) -> Result:
    options = {"compress_level": inputs["compress_level"], "pnginfo": _png_metadata(run)}
    return _animation(run, inputs, "png", options, animated=True)


def save_animated_webp(run: NodeRun, inputs: Json) -> Result:
    method = {"default": 4, "fastest": 0, "slowest": 6}[inputs["method"]]
    options = {"lossless": inputs["lossless"], "quality": inputs["quality"], "method": method}
    return _animation(run, inputs, "webp", options, animated=len(inputs["images"].frames) != 1)


def create_video(_: NodeRun, inputs: Json) -> Result:
    return Result((Video(inputs["images"], inputs["fps"]),))


def save_video(run: NodeRun, inputs: Json) -> Result:
    video: Video = inputs["video"]
    return _film(run, inputs["filename_prefix"], "mp4", video.images, video.fps)


def save_webm(run: NodeRun, inputs: Json) -> Result:
    return _film(run, inputs["filename_prefix"], "webm", inputs["images"], inputs["fps"])


def empty_audio(_: NodeRun, inputs: Json) -> Result:
    return Result((Audio(inputs["duration"], inputs["sample_rate"], inputs["channels"]),))


def save_audio(run: NodeRun, inputs: Json) -> Result:
    return _sound(inputs["audio"], run.folders.output, inputs["filename_prefix"], "output")


def preview_audio(run: NodeRun, inputs: Json) -> Result:
    return _sound(inputs["audio"], run.folders.temp, f"ComfyUI_temp_{_letters(run)}", "temp")


def _pictures(
    run: NodeRun, frames: Sequence[Image.Image], root: Path, prefix: str, kind: str, compress_level: int
) -> Result:
    place = save_place(root, prefix, frames[0].width, frames[0].height)
    metadata = _png_metadata(run)
    listed = []
    for number, frame in enumerate(frames):
        name = place.next_name("png", number)
        frame.save(place.folder / name, pnginfo=metadata, compress_level=compress_level)
        listed.append(_listed(name, place, kind))
    return Result(shown={"images": listed})


def _preview(run: NodeRun, frames: Sequence[Image.Image]) -> Result:
    return _pictures(run, frames, run.folders.temp, f"ComfyUI_temp_{_letters(run)}", "temp", 1)


def _animation(run: NodeRun, inputs: Json, extension: str, options: dict[str, Any], animated: bool) -> Result:
    images: Images = inputs["images"]
    place = save_place(run.folders.output, inputs["filename_prefix"], images.width, images.height)
    name = place.next_name(extension)
    first, *others = _distinct(images.frames)
    duration = int(1000 / inputs["fps"])
    first.save(place.folder / name, save_all=True, append_images=others, duration=duration, **options)
    return Result(shown={"images": [_listed(name, place, "output")], "animated": [animated]})


def _film(run: NodeRun, prefix: str, extension: str, images: Images, fps: float) -> Result:
    place = save_place(run.folders.output, prefix, images.width, images.height)
    name = place.next_name(extension)
    write = write_mp4 if extension == "mp4" else write_webm
    write(place.folder / name, images.frames, fps)
    return Result(shown={"images": [_listed(name, place, "output")], "animated": [True]})


def _sound(audio: Audio, root: Path, prefix: str, kind: str) -> Result:
    place = save_place(root, prefix)
    name = place.next_name("flac")
    write_flac(place.folder / name, audio.seconds, audio.rate, audio.channels)
    return Result(shown={"audio": [_listed(name, place, kind)]})


def _png_metadata(run: NodeRun) -> PngInfo:
    metadata = PngInfo()
    for key, value in run.picture_metadata.items():
        metadata.add_text(key, json.dumps(value))
    return metadata


def _distinct(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Pillow leaves out frames that are the same object as the one before. Copies keep the count."""
    return [frame.copy() for frame in frames]


def _letters(run: NodeRun) -> str:
    return "".join(run.dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5))


def _listed(name: str, place: SavePlace, kind: str) -> dict[str, Any]:
    return {"filename": name, "subfolder": place.subfolder, "type": kind}


BEHAVIOURS: dict[str, Behaviour] = {
    "SaveImage": save_image,
    "PreviewImage": preview_image,
    "MaskPreview": preview_mask,
    "PreviewAny": preview_text,
    "SaveLatent": save_latent,
    "SaveAnimatedPNG": save_animated_png,
    "SaveAnimatedWEBP": save_animated_webp,
    "CreateVideo": create_video,
    "SaveVideo": save_video,
    "SaveWEBM": save_webm,
    "EmptyAudio": empty_audio,
    "SaveAudio": save_audio,
    "PreviewAudio": preview_audio,
}
