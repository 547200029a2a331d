"""Simple values, sleeping, and the behaviour of classes that are known by their definition only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from PIL import Image

from comfyui_agent.domain.node_classes import UNLISTED
from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine.behaviours import saving
from comfyui_agent.sim.engine.behaviours.sampling import picture_of
from comfyui_agent.sim.engine.node_run import Behaviour, NodeRun, Result
from comfyui_agent.sim.engine.values import Audio, Conditioning, Images, Latent, Masks, Model, Opaque, Settings, Video
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


def primitive(_: NodeRun, inputs: Json) -> Result:
    return Result((inputs["value"],))


def concatenate(_: NodeRun, inputs: Json) -> Result:
    return Result((f"{inputs['string_a']}{inputs['delimiter']}{inputs['string_b']}",))


def sleep(run: NodeRun, inputs: Json) -> Result:
    run.pace.wait(inputs["seconds"])
    return Result((inputs["value"],))


def anything(run: NodeRun, inputs: Json) -> Result:
    """Do what the definition says: save the inputs, or make values of the declared types from them."""
    if run.definition.is_output:
        return _save(run, inputs)
    if "steps" in inputs and "LATENT" in run.definition.output:
        run.pace.work(int(inputs["steps"]), None)
    origin = hashlib.sha256(run.key.encode()).hexdigest()
    settings = Settings(run.definition.name, tuple(inputs.items()))
    return Result(
        tuple(
            settings if kind in SAMPLER_SETTINGS else _value(str(kind), inputs, origin)
            for kind in run.definition.output
        )
    )


def _save(run: NodeRun, inputs: Json) -> Result:
    if run.definition.name in UNLISTED:
        return Result(tuple(Opaque(str(kind), run.node_id) for kind in run.definition.output))
    prefix = str(inputs.get(PREFIX, run.definition.name))
    for kind, name, save in SAVERS:
        for value in inputs.values():
            if isinstance(value, kind):
                return save(run, {name: value, PREFIX: prefix})
    return Result(tuple(Opaque(str(kind), run.node_id) for kind in run.definition.output))


def _value(kind: str, inputs: Json, origin: str) -> Any:
    """A value of a declared type: an input of that type, or one made from all inputs."""
    wanted = {"IMAGE": Images, "MASK": Masks, "LATENT": Latent, "CONDITIONING": Conditioning, "VIDEO": Video}
    wanted |= {"AUDIO": Audio, "MODEL": Model, "CLIP": Model, "VAE": Model, "STRING": str, "INT": int, "FLOAT": float}
    if kind in wanted:
        for value in inputs.values():
            if isinstance(value, wanted[kind]) and not (isinstance(value, Model) and value.kind != kind.lower()):
                return value
    if kind in SAME_AS_INPUT:
        passed = (value for value in inputs.values() if not isinstance(value, bool | int | float | str | None))
        return next(passed, Opaque(kind, origin))
    width, height = _size(inputs)
    made: dict[str, Callable[[], Any]] = {
        "IMAGE": lambda: _pictures(inputs, origin, width, height),
        "MASK": lambda: Masks((Image.new("L", (width, height), 255),)),
        "LATENT": lambda: Latent(width, height, 1, Recipe(words=origin[:12], style=origin)),
        "CONDITIONING": lambda: Conditioning(origin),
        "VIDEO": lambda: Video(_pictures(inputs, origin, width, height), 24.0),
        "AUDIO": lambda: Audio(1.0, 44100, 1),
        "STRING": lambda: origin,
        "INT": lambda: 0,
        "FLOAT": lambda: 0.0,
        "BOOLEAN": lambda: False,
        "MODEL": lambda: Model("model", origin),
        "CLIP": lambda: Model("clip", origin),
        "VAE": lambda: Model("vae", origin),
    }
    return made[kind]() if kind in made else Opaque(kind, origin)


def _pictures(inputs: Json, origin: str, width: int, height: int) -> Images:
    for value in inputs.values():
        if isinstance(value, Latent):
            return Images(picture_of(value))
    words = next((value for value in inputs.values() if isinstance(value, str) and " " in value), origin[:12])
    seed = next((inputs[name] for name in ("seed", "noise_seed") if isinstance(inputs.get(name), int)), 0)
    return Images((paint(Recipe(words=words, seed=seed, style=origin), width, height),))


def _size(inputs: Json) -> tuple[int, int]:
    def edge(name: str) -> int:
        value = inputs.get(name)
        return value if isinstance(value, int) and 0 < value <= 16384 else EDGE

    return edge("width"), edge("height")


BEHAVIOURS: dict[str, Behaviour] = {
    "PrimitiveInt": primitive,
    "PrimitiveFloat": primitive,
    "PrimitiveString": primitive,
    "PrimitiveBoolean": primitive,
    "StringConcatenate": concatenate,
    "Sleep": sleep,
}
