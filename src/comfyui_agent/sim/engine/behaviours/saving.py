"""Output nodes: real files, listed under ComfyUI's keys."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL.PngImagePlugin import PngInfo

from comfyui_agent.sim.engine.media import write_flac, write_latent, write_mp4, write_webm
from comfyui_agent.sim.engine.values import Audio, Images, Latent, NodeRun, Result, Video
from comfyui_agent.wire.prompts import Json

DATE = {"year": "%Y", "month": "%m", "day": "%d", "hour": "%H", "minute": "%M", "second": "%S"}


def save_image(run: NodeRun, inputs: Json) -> Result:
    return _save_pictures(run, inputs["images"], _place(run, inputs, inputs["images"]), compress_level=4)


def send_image(run: NodeRun, inputs: Json) -> Result:
    """Send each picture to the client. Nothing is kept."""
    frames = inputs["images"].frames
    for number, frame in enumerate(frames):
        run.show(number, len(frames), frame)
    return Result()


def preview_image(run: NodeRun, inputs: Json) -> Result:
    return _save_pictures(run, inputs["images"], _temporary_place(run), compress_level=1)


def preview_mask(run: NodeRun, inputs: Json) -> Result:
    masks = Images(inputs["mask"].frames).each(lambda frame: frame.convert("RGB"))
    pictures = _save_pictures(run, masks, _temporary_place(run), compress_level=1)
    return Result(shown={**(pictures.shown or {}), "animated": [False]})


def preview_text(_: NodeRun, inputs: Json) -> Result:
    source = inputs.get("source")
    text = str(source)
    if source is not None and not isinstance(source, str | int | float):
        with contextlib.suppress(TypeError, ValueError):
            text = json.dumps(source, indent=4, ensure_ascii=False)
    return Result((text,), shown={"text": [text]})


def save_latent(run: NodeRun, inputs: Json) -> Result:
    latent: Latent = inputs["samples"]
    shape = (latent.count, 4, max(1, latent.height // 8), max(1, latent.width // 8))
    metadata = {key: json.dumps(value) for key, value in run.metadata.items()}
    seed = latent.recipe.seed if latent.recipe else 0
    return _save(_place(run, inputs), "latents", "latent", lambda path: write_latent(path, shape, seed, metadata))


def save_animated_png(run: NodeRun, inputs: Json) -> Result:
    options = {"compress_level": inputs["compress_level"], "pnginfo": _png_metadata(run)}
    return _save_animation(run, inputs, "png", options, animated=True)


def save_animated_webp(run: NodeRun, inputs: Json) -> Result:
    method = {"default": 4, "fastest": 0, "slowest": 6}[inputs["method"]]
    options = {"lossless": inputs["lossless"], "quality": inputs["quality"], "method": method}
    return _save_animation(run, inputs, "webp", options, animated=len(inputs["images"].frames) != 1)


def save_video(run: NodeRun, inputs: Json) -> Result:
    return _save_film(run, inputs, "mp4", write_mp4, inputs["video"])


def save_webm(run: NodeRun, inputs: Json) -> Result:
    return _save_film(run, inputs, "webm", write_webm, Video(inputs["images"], inputs["fps"]))


def save_audio(run: NodeRun, inputs: Json) -> Result:
    return _save_sound(inputs["audio"], _place(run, inputs))


def preview_audio(run: NodeRun, inputs: Json) -> Result:
    return _save_sound(inputs["audio"], _temporary_place(run))


def _save_pictures(run: NodeRun, images: Images, place: SavePlace, compress_level: int) -> Result:
    metadata = _png_metadata(run)
    listed = []
    for number, frame in enumerate(images.frames):
        path = place.next_path("png", number)
        frame.save(path, pnginfo=metadata, compress_level=compress_level)
        listed.append(place.listed(path))
    return Result(shown={"images": listed})


def _save_animation(run: NodeRun, inputs: Json, extension: str, options: Json, animated: bool) -> Result:
    images: Images = inputs["images"]
    place = _place(run, inputs, images)
    first, *others = (frame.copy() for frame in images.frames)  # Pillow leaves out repetitions of the same object
    options |= {"save_all": True, "append_images": others, "duration": int(1000 / inputs["fps"])}
    return _save(place, "images", extension, lambda path: first.save(path, **options), animated=[animated])


def _save_film(run: NodeRun, inputs: Json, extension: str, write: Callable[..., None], film: Video) -> Result:
    place = _place(run, inputs, film.images)
    return _save(place, "images", extension, lambda path: write(path, film.images.frames, film.fps), animated=[True])


def _save_sound(audio: Audio, place: SavePlace) -> Result:
    seconds, rate, channels = audio.seconds, audio.rate, audio.channels
    return _save(place, "audio", "flac", lambda path: write_flac(path, seconds, rate, channels))


def _save(place: SavePlace, key: str, extension: str, write: Callable[[Path], None], **more: Any) -> Result:
    path = place.next_path(extension)
    write(path)
    return Result(shown={key: [place.listed(path)], **more})


def _png_metadata(run: NodeRun) -> PngInfo:
    metadata = PngInfo()
    for key, value in run.metadata.items():
        metadata.add_text(key, json.dumps(value))
    return metadata


@dataclass
class SavePlace:
    """Where one save node puts its files. Their names are a prefix and a counter."""

    folder: Path
    subfolder: str
    stem: str
    counter: int
    kind: str

    def next_path(self, extension: str, batch_number: int | None = None) -> Path:
        stem = self.stem if batch_number is None else self.stem.replace("%batch_num%", str(batch_number))
        path = self.folder / f"{stem}_{self.counter:05}_.{extension}"
        self.counter += 1
        return path

    def listed(self, path: Path) -> dict[str, Any]:
        return {"filename": path.name, "subfolder": self.subfolder, "type": self.kind}


def save_place(root: Path, prefix: str, width: int = 0, height: int = 0, kind: str = "output") -> SavePlace:
    """Fill in the placeholders of a prefix and continue after the highest counter in the folder."""
    now = time.localtime()
    fillings = {"width": str(width), "height": str(height)}
    fillings |= {name: time.strftime(form, now) for name, form in DATE.items()}
    for name, value in fillings.items():
        prefix = prefix.replace(f"%{name}%", value)
    subfolder, stem = os.path.split(os.path.normpath(prefix))
    folder = Path(os.path.normpath(root / subfolder))
    if not folder.is_relative_to(root):
        raise Exception(  # the class that clients of the real server see
            "**** ERROR: Saving image outside the output folder is not allowed."
            f"\n full_output_folder: {folder}\n         output_dir: {root}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    highest = max((_counter(name, stem) for name in os.listdir(folder)), default=0)
    return SavePlace(folder, subfolder, stem, highest + 1, kind)


def _place(run: NodeRun, inputs: Json, images: Images | None = None) -> SavePlace:
    return save_place(run.folders.output, inputs["filename_prefix"], *(images.size if images else ()))


def _temporary_place(run: NodeRun) -> SavePlace:
    letters = "".join(run.dice.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(5))
    return save_place(run.folders.temp, f"ComfyUI_temp_{letters}", kind="temp")


def _counter(name: str, stem: str) -> int:
    if not name.startswith(f"{stem}_"):
        return 0
    digits = name[len(stem) + 1 :].split(".")[0].split("_")[0]
    return int(digits) if digits.isdecimal() else 0
