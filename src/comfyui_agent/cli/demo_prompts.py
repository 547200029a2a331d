"""What the demonstration renders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Graph = dict[str, Any]

CHECKPOINT = "e3_dreamscape_v1.safetensors"
OTHER_CHECKPOINT = "e3_inkwash_v1.safetensors"


@dataclass(frozen=True)
class DemoPrompt:
    """A prompt, and the name under which its result is kept."""

    name: str
    graph: Graph = field(repr=False)


def demo_prompts() -> list[DemoPrompt]:
    """Six pictures, a film, and one prompt that asks for a model which is not there."""
    return [
        DemoPrompt("01_lighthouse", text_to_image("a lighthouse above a stormy sea", seed=11)),
        DemoPrompt("02_lighthouse_again", text_to_image("a lighthouse above a stormy sea", seed=12)),
        DemoPrompt("03_harbour", text_to_image("a harbour at dawn, boats and gulls", seed=11)),
        DemoPrompt("04_harbour_in_ink", text_to_image("a harbour at dawn, boats and gulls", 11, OTHER_CHECKPOINT)),
        DemoPrompt("05_knight", text_to_image("portrait of a knight in silver armour", seed=7, guidance=12.0)),
        DemoPrompt("06_knight_in_haste", text_to_image("portrait of a knight in silver armour", seed=7, steps=3)),
        DemoPrompt("07_sunrise", film("a sunrise over the hills", seed=3)),
        DemoPrompt("08_missing_model", text_to_image("a dragon", seed=1, checkpoint="not_installed.safetensors")),
    ]


def text_to_image(words: str, seed: int, checkpoint: str = CHECKPOINT, steps: int = 20, guidance: float = 7.0) -> Graph:
    return {
        **_sampled(words, seed, checkpoint, steps, guidance, "EmptyLatentImage", {"batch_size": 1}),
        "7": _node("SaveImage", images=["6", 0], filename_prefix="e3_demo/picture"),
    }


def film(words: str, seed: int) -> Graph:
    return {
        **_sampled(words, seed, OTHER_CHECKPOINT, 20, 7.0, "EmptyHunyuanLatentVideo", {"length": 25, "batch_size": 1}),
        "7": _node("SaveWEBM", images=["6", 0], filename_prefix="e3_demo/film", codec="vp9", fps=12.0, crf=32.0),
    }


def _sampled(
    words: str, seed: int, checkpoint: str, steps: int, guidance: float, latent: str, count: dict[str, int]
) -> Graph:
    return {
        "1": _node("CheckpointLoaderSimple", ckpt_name=checkpoint),
        "2": _node("CLIPTextEncode", text=words, clip=["1", 1]),
        "3": _node("CLIPTextEncode", text="blurry, low quality", clip=["1", 1]),
        "4": _node(latent, width=768, height=512, **count),
        "5": _node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["3", 0],
            latent_image=["4", 0],
            seed=seed,
            steps=steps,
            cfg=guidance,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "6": _node("VAEDecode", samples=["5", 0], vae=["1", 2]),
    }


def _node(class_type: str, **inputs: Any) -> Graph:
    return {"class_type": class_type, "inputs": inputs}
