"""Models, latents, and samplers, which spend render time and video memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from PIL import Image, ImageOps

from comfyui_agent.pictures.painting import Recipe, paint
from comfyui_agent.sim.engine.values import Conditioning, Images, Latent, Model, NodeRun, Result, Settings
from comfyui_agent.wire.prompts import Json

LATENT_SCALE = 8
PREVIEW_EDGE = 512
USUAL_STEPS = 20


def load_model(run: NodeRun, inputs: Json) -> Result:
    """The first declared input names the file."""
    name = str(inputs[next(iter(run.definition.inputs))])
    return Result(tuple(Model(str(kind).lower(), name) for kind in run.definition.output))


def lora(_: NodeRun, inputs: Json) -> Result:
    addition = (f"{inputs['lora_name']}*{inputs['strength_model']}",)
    changed = (replace(inputs[kind], additions=inputs[kind].additions + addition) for kind in ("model", "clip"))
    return Result(tuple(changed))


def empty_latent(inputs: Json) -> Latent:
    count = inputs.get("length", 1) * inputs["batch_size"]
    return Latent(inputs["width"], inputs["height"], count, is_film="length" in inputs)


def upscale_latent(inputs: Json) -> Latent:
    latent: Latent = inputs["samples"]
    return replace(latent, width=inputs["width"] or latent.width, height=inputs["height"] or latent.height)


def video_latent(_: NodeRun, inputs: Json) -> Result:
    base = Images(inputs["init_image"].frames[:1])
    latent = Latent(inputs["width"], inputs["height"], inputs["video_frames"], base=base, is_film=True)
    return Result((Conditioning("from a picture"), Conditioning(""), latent))


def encode(inputs: Json) -> Latent:
    pixels: Images = inputs["pixels"]
    return Latent(*pixels.size, len(pixels.frames), base=pixels)


def sample(run: NodeRun, inputs: Json) -> Result:
    """A sampler whose last steps another one does has `start_at_step` and `end_at_step`."""
    recipe = Recipe(
        words=_words(inputs.get("positive")),
        avoid=_words(inputs.get("negative")),
        seed=inputs["seed"] if "seed" in inputs else inputs["noise_seed"],
        steps=inputs["steps"],
        guidance=inputs["cfg"],
        sampler=f"{inputs['sampler_name']}/{inputs['scheduler']}",
    )
    steps = min(inputs["steps"], inputs.get("end_at_step", inputs["steps"])) - inputs.get("start_at_step", 0)
    plan = Plan(recipe, steps, inputs["sampler_name"], inputs.get("denoise", 1.0))
    return Result((_render(run, inputs["model"], plan, inputs["latent_image"]),))


def sample_custom(run: NodeRun, inputs: Json) -> Result:
    noise: Settings = inputs["noise"]
    guider: Settings = inputs["guider"]
    schedule: Settings = inputs["sigmas"]
    recipe = Recipe(
        words=_words(guider.get("conditioning") or guider.get("positive")),
        avoid=_words(guider.get("negative")),
        seed=int(noise.get("noise_seed", 0)),
        steps=int(schedule.get("steps", USUAL_STEPS)),
        guidance=float(guider.get("cfg", Recipe.guidance)),
        sampler=str(inputs["sampler"].get("sampler_name", inputs["sampler"].kind)),
    )
    plan = Plan(recipe, recipe.steps, recipe.sampler, schedule.get("denoise", 1.0))
    latent = _render(run, guider.get("model"), plan, inputs["latent_image"])
    return Result((latent, latent))


def decode(latent: Latent) -> Images:
    """Paint each picture of a latent, over the picture that it was encoded from."""
    frames = []
    for index in range(latent.count):
        base = None
        if latent.base is not None:
            base = latent.base.frames[index % len(latent.base.frames)].resize((latent.width, latent.height))
        if latent.recipe is None:
            frames.append(base or Image.new("RGB", (latent.width, latent.height), (128, 118, 108)))
            continue
        seed = latent.recipe.seed + (0 if latent.is_film else index)
        painted = paint(replace(latent.recipe, seed=seed, frame=index), latent.width, latent.height)
        frames.append(painted if base is None else Image.blend(base, painted, latent.strength))
    return Images(tuple(frames))


@dataclass(frozen=True)
class Plan:
    """What a sampler does: so many steps, of which some samplers report fewer."""

    recipe: Recipe
    steps: int
    sampler: str
    denoise: float

    @property
    def reported(self) -> int:
        return self.steps // 3 + 1 if self.sampler == "dpm_fast" else self.steps


def _render(run: NodeRun, model: Any, plan: Plan, latent: Latent) -> Latent:
    if plan.steps <= 0 or plan.denoise <= 0:
        return latent
    style = model.style if isinstance(model, Model) else "unknown"
    recipe = replace(plan.recipe, style=style)
    name = model.name if isinstance(model, Model) else style
    if name not in run.memory.loaded:
        run.pace.load_model(name)
    run.memory.reserve(name, latent.width * latent.height * latent.count)
    try:
        run.pace.work(plan.steps, lambda step: _preview(recipe, latent, step / plan.steps), plan.reported)
    finally:
        run.memory.release()
    strength = float(plan.denoise) if latent.base is not None else 1.0
    return replace(latent, recipe=recipe, strength=strength)


def _preview(recipe: Recipe, latent: Latent, share: float) -> Image.Image:
    """The unfinished picture at latent size, enlarged to the size that clients get."""
    size = (max(1, latent.width // LATENT_SCALE), max(1, latent.height // LATENT_SCALE))
    rough = paint(recipe, *size, finished=share * 0.99)
    return ImageOps.contain(rough, (PREVIEW_EDGE, PREVIEW_EDGE), Image.Resampling.BILINEAR)


def _words(conditioning: Any) -> str:
    return conditioning.text if isinstance(conditioning, Conditioning) else ""
