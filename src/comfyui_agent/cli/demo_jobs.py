"""What the demonstration renders: twelve job files of three workflows, a sweep and a book. Two are wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass

INK = "e3_inkwash_v1.safetensors"


@dataclass(frozen=True)
class DemoJob:
    """A job file: its folder, its name, its text."""

    kind: str
    name: str
    text: str


@dataclass(frozen=True)
class DemoSweep:
    """A sweep: its axes and its common inputs."""

    name: str
    workflow: str
    sets: dict[str, str]
    inputs: dict[str, str]


SWEEP = DemoSweep(
    "lighthouses",
    "wf_realistic_portrait",
    {"seed": "1..3", "cfg": "4,7.5,11"},
    {"prompt": "a lighthouse keeper at dawn"},
)

BOOK = """\
book_id: winter_tales
title: Winter Tales
workflow: wf_realistic_portrait
inputs:
  seed: 12
  steps: 8
pages:
  - inputs: {prompt: a fox leaves its den in the first snow}
  - inputs: {prompt: an owl watches from a pine}
  - inputs: {prompt: two hares under a silver moon}
  - inputs: {prompt: the bear that would not sleep, checkpoint: not_installed.safetensors}
  - inputs: {prompt: a river under the ice}
  - inputs: {prompt: the thaw, seed: 13}
"""


def demo_jobs() -> list[DemoJob]:
    """Eight portraits and places, two pictures from a picture, a film, and one that asks for a model nobody has."""
    return [
        _portrait("01_knight", "portrait of a knight in the rain, cinematic lighting", seed=7),
        _portrait("02_knight_again", "portrait of a knight in the rain, cinematic lighting", seed=8),
        _portrait("03_captain", "an old sea captain, weathered face, oil lamp", seed=11, cfg=9.5),
        _portrait("04_captain_in_ink", "an old sea captain, weathered face, oil lamp", seed=11, checkpoint=INK),
        _portrait("05_gardener", "a gardener among sunflowers, soft morning light", seed=3, width=768),
        _portrait("06_astronomer", "an astronomer under the stars, long exposure", seed=5, priority=10),
        _portrait("07_dancer", "a dancer in motion, blue stage light", seed=21, steps=12),
        _portrait("08_dragon_tamer", "a dragon tamer", seed=1, checkpoint="not_installed.safetensors", retry_limit=0),
        _portrait("09_violinist", "a violinist on a balcony, golden hour", seed=34),
        _picture("10_castle_in_watercolour", "a castle at dusk, loose watercolour", seed=2, denoise=0.55),
        _picture("11_castle_in_winter", "the same castle under snow, pale sky", seed=4, denoise=0.7),
        _film("12_sunrise", "a sunrise over the hills, drifting mist", seed=9),
    ]


def _portrait(name: str, prompt: str, seed: int, steps: int = 20, priority: int = 50, **more: object) -> DemoJob:
    extra = {key: value for key, value in more.items() if key != "retry_limit"}
    inputs = {"prompt": f'"{prompt}"', "seed": seed, "steps": steps, **extra}
    head = f"retry_limit: {more['retry_limit']}\n" if "retry_limit" in more else ""
    return DemoJob("image", name, _text("T2I", "wf_realistic_portrait", priority, inputs, head))


def _picture(name: str, prompt: str, seed: int, denoise: float) -> DemoJob:
    inputs = {"image": "pictures/castle.png", "prompt": f'"{prompt}"', "seed": seed, "denoise": denoise}
    return DemoJob("image", name, _text("I2I", "wf_image_to_image", 50, inputs))


def _film(name: str, prompt: str, seed: int) -> DemoJob:
    return DemoJob("video", name, _text("T2V", "wf_text_to_video", 50, {"prompt": f'"{prompt}"', "seed": seed}))


def _text(job_type: str, workflow: str, priority: int, inputs: dict[str, object], head: str = "") -> str:
    lines = "".join(f"  {name}: {value}\n" for name, value in inputs.items())
    return f"job_type: {job_type}\nworkflow_id: {workflow}\npriority: {priority}\n{head}inputs:\n{lines}"
