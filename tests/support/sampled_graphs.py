"""Whole workflows as people have them: text to picture, text to film."""

from __future__ import annotations

from typing import Any

Graph = dict[str, Any]

CHECKPOINT = "e3_dreamscape_v1.safetensors"
OTHER_CHECKPOINT = "e3_inkwash_v1.safetensors"


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
