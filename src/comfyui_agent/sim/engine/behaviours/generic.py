"""Sleeping, and the behaviour of classes that are known by their definition only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from PIL import Image

from comfyui_agent.domain.node_classes import UNLISTED
from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine.behaviours import saving
from comfyui_agent.sim.engine.behaviours.sampling import decode
from comfyui_agent.sim.engine.values import (
    Audio,
    Behaviour,
    Conditioning,
    Images,
    Latent,
    Masks,
    Model,
    NodeRun,
    Opaque,
    Result,
    Settings,
    Video,
)
from comfyui_agent.sim.prompt_queue import Json

PREFIX = "filename_prefix"
EDGE = 512
SAMPLER_SETTINGS = ("NOISE", "GUIDER", "SAMPLER", "SIGMAS")
SAVERS: tuple[tuple[type, str, Behaviour], ...] = (
    (Video, "video", saving.save_video),
    (Images, "images", saving.save_image),
    (Masks, "mask", saving.preview_mask),
    (Audio, "audio", saving.save_audio),
    (Latent, "samples", saving.save_latent),
)
SAME_AS_INPUT = ("*", "COMFY_MATCHTYPE_V3")


def sleep(run: NodeRun, inputs: Json) -> Result:
    run.pace.sleep(inputs["seconds"])
    return Result((inputs["value"],))


def anything(run: NodeRun, inputs: Json) -> Result:
    """Do what the definition says: save the inputs, or make values of the declared types from them."""
    definition = run.definition
    origin = hashlib.sha256(run.key.encode()).hexdigest()
    if definition.is_output:
        saved = None if definition.name in UNLISTED else _save(run, inputs)
        return saved or Result(tuple(Opaque(str(kind), origin) for kind in definition.output))
    if "steps" in inputs and "LATENT" in definition.output:
        run.pace.work(int(inputs["steps"]), None)
    settings = Settings(definition.name, inputs)
    values = (settings if kind in SAMPLER_SETTINGS else _value(str(kind), inputs, origin) for kind in definition.output)
    return Result(tuple(values))


def _save(run: NodeRun, inputs: Json) -> Result | None:
    prefix = str(inputs.get(PREFIX, run.definition.name))
    for kind, name, save in SAVERS:
        for value in inputs.values():
            if isinstance(value, kind):
                return save(run, {name: value, PREFIX: prefix})
    return None


def _value(kind: str, inputs: Json, origin: str) -> Any:
    """A value of a declared type: an input of that type, or one made from all inputs."""
    if kind in SAME_AS_INPUT:
        passed = (value for value in inputs.values() if not isinstance(value, bool | int | float | str | None))
        return next(passed, Opaque(kind, origin))
    if kind not in MADE:
        return Opaque(kind, origin)
    wanted, make = MADE[kind]
    for value in inputs.values():
        if isinstance(value, wanted) and not (isinstance(value, Model) and value.kind != kind.lower()):
            return value
    return make(inputs, origin)


def _pictures(inputs: Json, origin: str) -> Images:
    for value in inputs.values():
        if isinstance(value, Latent):
            return decode(value)
    words = next((value for value in inputs.values() if isinstance(value, str) and " " in value), origin[:12])
    seed = next((inputs[name] for name in ("seed", "noise_seed") if isinstance(inputs.get(name), int)), 0)
    return Images((paint(Recipe(words=words, seed=seed, style=origin), *_size(inputs)),))


def _size(inputs: Json) -> tuple[int, int]:
    def edge(name: str) -> int:
        value = inputs.get(name)
        return value if isinstance(value, int) and 0 < value <= 16384 else EDGE

    return edge("width"), edge("height")


MADE: dict[str, tuple[type, Callable[[Json, str], Any]]] = {
    "IMAGE": (Images, _pictures),
    "MASK": (Masks, lambda inputs, _: Masks((Image.new("L", _size(inputs), 255),))),
    "LATENT": (Latent, lambda inputs, origin: Latent(*_size(inputs), 1, Recipe(words=origin[:12], style=origin))),
    "CONDITIONING": (Conditioning, lambda _, origin: Conditioning(origin)),
    "VIDEO": (Video, lambda inputs, origin: Video(_pictures(inputs, origin), 24.0)),
    "AUDIO": (Audio, lambda *_: Audio(1.0, 44100, 1)),
    "STRING": (str, lambda _, origin: origin),
    "INT": (int, lambda *_: 0),
    "FLOAT": (float, lambda *_: 0.0),
    "BOOLEAN": (bool, lambda *_: False),
    "MODEL": (Model, lambda _, origin: Model("model", origin)),
    "CLIP": (Model, lambda _, origin: Model("clip", origin)),
    "VAE": (Model, lambda _, origin: Model("vae", origin)),
}
"""The types that can be made: the class of a value, and how to make one."""
