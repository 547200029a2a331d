"""Sleeping, and the behaviour of classes that are known by their definition only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from PIL import Image

from comfyui_agent.domain.node_classes import UNLISTED
from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine import values
from comfyui_agent.sim.engine.behaviours import saving
from comfyui_agent.sim.engine.behaviours.sampling import decode
from comfyui_agent.wire.prompts import Json

PREFIX = "filename_prefix"
EDGE = 512
SAMPLER_SETTINGS = ("NOISE", "GUIDER", "SAMPLER", "SIGMAS")
SAVERS: tuple[tuple[type, str, values.Behaviour], ...] = (
    (values.Video, "video", saving.save_video),
    (values.Images, "images", saving.save_image),
    (values.Masks, "mask", saving.preview_mask),
    (values.Audio, "audio", saving.save_audio),
    (values.Latent, "samples", saving.save_latent),
)
SAME_AS_INPUT = ("*", "COMFY_MATCHTYPE_V3")


def sleep(run: values.NodeRun, inputs: Json) -> values.Result:
    run.pace.sleep(inputs["seconds"])
    return values.Result((inputs["value"],))


def anything(run: values.NodeRun, inputs: Json) -> values.Result:
    """Do what the definition says: save the inputs, or make values of the declared types from them."""
    definition = run.definition
    saved = _save(run, inputs) if definition.is_output and definition.name not in UNLISTED else None
    if "steps" in inputs and "LATENT" in definition.output:
        run.pace.work(int(inputs["steps"]), None)
    return saved or values.Result()


def outputs(run: values.NodeRun, inputs: Json) -> tuple[Any, ...]:
    """A value of each type that the definition declares."""
    origin = hashlib.sha256(run.key.encode()).hexdigest()
    settings = values.Settings(run.definition.name, inputs)
    return tuple(
        settings if kind in SAMPLER_SETTINGS else _value(str(kind), inputs, origin) for kind in run.definition.output
    )


def _save(run: values.NodeRun, inputs: Json) -> values.Result | None:
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
        return next(passed, values.Opaque(kind, origin))
    if kind not in MADE:
        return values.Opaque(kind, origin)
    wanted, make = MADE[kind]
    for value in inputs.values():
        if isinstance(value, wanted) and not (isinstance(value, values.Model) and value.kind != kind.lower()):
            return value
    return make(inputs, origin)


def _pictures(inputs: Json, origin: str) -> values.Images:
    for value in inputs.values():
        if isinstance(value, values.Latent):
            return decode(value)
    words = next((value for value in inputs.values() if isinstance(value, str) and " " in value), origin[:12])
    seed = next((inputs[name] for name in ("seed", "noise_seed") if isinstance(inputs.get(name), int)), 0)
    return values.Images((paint(Recipe(words=words, seed=seed, style=origin), *_size(inputs)),))


def _size(inputs: Json) -> tuple[int, int]:
    def edge(name: str) -> int:
        value = inputs.get(name)
        return value if isinstance(value, int) and 0 < value <= 16384 else EDGE

    return edge("width"), edge("height")


MADE: dict[str, tuple[type, Callable[[Json, str], Any]]] = {
    "IMAGE": (values.Images, _pictures),
    "MASK": (values.Masks, lambda inputs, _: values.Masks((Image.new("L", _size(inputs), 255),))),
    "LATENT": (
        values.Latent,
        lambda inputs, origin: values.Latent(*_size(inputs), 1, Recipe(words=origin[:12], style=origin)),
    ),
    "CONDITIONING": (values.Conditioning, lambda _, origin: values.Conditioning(origin)),
    "VIDEO": (values.Video, lambda inputs, origin: values.Video(_pictures(inputs, origin), 24.0)),
    "AUDIO": (values.Audio, lambda *_: values.Audio(1.0, 44100, 1)),
    "STRING": (str, lambda _, origin: origin),
    "INT": (int, lambda *_: 0),
    "FLOAT": (float, lambda *_: 0.0),
    "BOOLEAN": (bool, lambda *_: False),
    "MODEL": (values.Model, lambda _, origin: values.Model("model", origin)),
    "CLIP": (values.Model, lambda _, origin: values.Model("clip", origin)),
    "VAE": (values.Model, lambda _, origin: values.Model("vae", origin)),
}
"""The types that can be made: the class of a value, and how to make one."""
