"""What simulated nodes do. A class without a behaviour of its own gets the generic one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PIL import Image

from comfyui_agent.sim.engine.behaviours import generic, images, sampling, saving
from comfyui_agent.sim.engine.values import Audio, Behaviour, Conditioning, Images, Masks, NodeRun, Result, Video
from comfyui_agent.wire.prompts import Json

BEHAVIOURS: dict[str, Behaviour] = {
    "CheckpointLoaderSimple": sampling.load_model,
    "ImageOnlyCheckpointLoader": sampling.load_model,
    "UNETLoader": sampling.load_model,
    "LoraLoader": sampling.lora,
    "SVD_img2vid_Conditioning": sampling.video_latent,
    "KSampler": sampling.sample,
    "KSamplerAdvanced": sampling.sample,
    "SamplerCustomAdvanced": sampling.sample_custom,
    "LoadImage": images.load,
    "SaveImage": saving.save_image,
    "SaveImageWebsocket": saving.send_image,
    "PreviewImage": saving.preview_image,
    "MaskPreview": saving.preview_mask,
    "PreviewAny": saving.preview_text,
    "SaveLatent": saving.save_latent,
    "SaveAnimatedPNG": saving.save_animated_png,
    "SaveAnimatedWEBP": saving.save_animated_webp,
    "SaveVideo": saving.save_video,
    "SaveWEBM": saving.save_webm,
    "SaveAudio": saving.save_audio,
    "PreviewAudio": saving.preview_audio,
    "Sleep": generic.sleep,
}
VALUES: dict[str, Callable[[Json], Any]] = {
    "EmptyLatentImage": sampling.empty_latent,
    "EmptySD3LatentImage": sampling.empty_latent,
    "EmptyHunyuanLatentVideo": sampling.empty_latent,
    "LatentUpscale": sampling.upscale_latent,
    "VAEEncode": sampling.encode,
    "EmptyImage": images.empty,
    "ImageScale": images.scale,
    "ImageScaleBy": images.scale_by,
    "ImageScaleToTotalPixels": images.scale_to_total_pixels,
    "ImageBatch": images.batch,
    "ImageCrop": images.crop,
    "ImageToMask": images.channel_mask,
    "ImageInvert": images.invert,
    "RepeatImageBatch": lambda inputs: Images(inputs["image"].frames * inputs["amount"]),
    "MaskToImage": lambda inputs: Images(inputs["mask"].frames).each(lambda frame: frame.convert("RGB")),
    "SolidMask": lambda given: Masks((Image.new("L", (given["width"], given["height"]), int(given["value"] * 255)),)),
    "CLIPTextEncode": lambda inputs: Conditioning(inputs["text"]),
    "ConditioningCombine": lambda inputs: Conditioning(
        f"{inputs['conditioning_1'].text} {inputs['conditioning_2'].text}"
    ),
    "StringConcatenate": lambda inputs: f"{inputs['string_a']}{inputs['delimiter']}{inputs['string_b']}",
    "CreateVideo": lambda inputs: Video(inputs["images"], inputs["fps"]),
    "EmptyAudio": lambda inputs: Audio(inputs["duration"], inputs["sample_rate"], inputs["channels"]),
}
"""Nodes with one value, which follows from their inputs."""


def is_known(name: str) -> bool:
    """Whether a class has a behaviour of its own."""
    return name in BEHAVIOURS or name in VALUES


def run_node(run: NodeRun, inputs: Json) -> Result:
    """Run a node. One that saves or shows passes on what it is given, as far as it has outputs."""
    name = run.definition.name
    if name in VALUES:
        return Result((VALUES[name](inputs),))
    result = BEHAVIOURS.get(name, generic.anything)(run, inputs)
    return result if result.values else replace(result, values=generic.outputs(run, inputs))
