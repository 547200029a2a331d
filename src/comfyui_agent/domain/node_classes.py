"""Facts about ComfyUI's node classes that no server tells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ONE_PICTURE = frozenset(
    """CheckpointLoaderSimple UNETLoader CLIPLoader DualCLIPLoader TripleCLIPLoader VAELoader LoraLoader
    LoraLoaderModelOnly ModelSamplingSD3 ModelSamplingFlux CLIPTextEncode CLIPTextEncodeFlux CLIPTextEncodeSDXL
    CLIPSetLastLayer ConditioningCombine ConditioningZeroOut FluxGuidance KSampler KSamplerAdvanced KSamplerSelect
    SamplerCustomAdvanced BasicScheduler BasicGuider CFGGuider RandomNoise EmptyLatentImage EmptySD3LatentImage
    LatentUpscale LatentUpscaleBy VAEDecode VAEDecodeTiled EmptyImage ImageScale ImageScaleBy ImageInvert ImageCrop
    ImageBlur ImageSharpen PrimitiveInt PrimitiveFloat PrimitiveString PrimitiveBoolean SaveImage""".split()
)
"""Classes that make at most one picture of one picture."""
LISTED = frozenset(
    """SaveImage SaveAnimatedPNG SaveAnimatedWEBP SaveVideo SaveWEBM SaveLatent SaveAudio SaveAudioMP3 SaveAudioOpus
    SaveGLB SaveSVGNode""".split()
)
"""Classes that list what they save. If they list nothing, the result is missing."""
UNLISTED = frozenset(
    """CheckpointSave CLIPSave VAESave ModelSave LoraSave SaveLoRA SaveImageDataSetToFolder
    SaveImageTextDataSetToFolder""".split()
)
"""Classes that save files for the server itself and list nothing."""
MODEL_ENDINGS = (".safetensors", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".gguf", ".sft", ".onnx", ".pkl")
MODEL_FOLDERS = {
    "ckpt_name": "checkpoints",
    "lora_name": "loras",
    "vae_name": "vae",
    "unet_name": "diffusion_models",
    "clip_name": "text_encoders",
    "control_net_name": "controlnet",
    "style_model_name": "style_models",
    "hypernetwork_name": "hypernetworks",
    "gligen_name": "gligen",
}
"""ComfyUI's folders of models by the inputs that name a file there."""
OTHER_FOLDERS = {"CLIPVisionLoader": "clip_vision", "UpscaleModelLoader": "upscale_models"}
"""Folders of classes whose inputs have names that others have, too."""
FILES = re.compile("Image|Mask|Video|Audio|3D|Latent")
FILE_INPUTS = frozenset({"image", "mask", "video", "audio", "file", "model_file", "latent"})
PROMPT_INPUTS = frozenset({"text", "prompt", "positive", "negative"})
MARKS = ("[input]", "[output]", "[temp]")
"""The marks behind a file name that tell ComfyUI its folder."""


def takes_file(class_type: str, input_name: str) -> bool:
    """Whether an input seems to name a file in the server's input folder, judged by names."""
    return input_name in FILE_INPUTS and FILES.search(class_type.partition("Load")[2]) is not None


def model_folder(class_type: str, input_name: str) -> str:
    """The folder of models that an input names a file of, as far as names tell; else empty."""
    return OTHER_FOLDERS.get(class_type) or MODEL_FOLDERS.get(input_name.rstrip("_0123456789"), "")


def is_marked(value: str) -> bool:
    """Whether a file name has a mark for its folder at the server."""
    return value.rstrip().endswith(MARKS)


def leaves_folder(value: str) -> bool:
    """Whether a file name, marked or not, is absolute or leads out of its folder at the server."""
    name = value.rstrip()
    mark = next((mark for mark in MARKS if name.endswith(mark)), "")
    name = name.removesuffix(mark)
    # ComfyUI drops the character before the mark.
    return _leads_out(name) or (bool(mark) and _leads_out(name[:-1]))


def _leads_out(name: str) -> bool:
    parts = [part.strip() for part in name.replace("\\", "/").split("/")]
    is_absolute = (len(parts) > 1 and not parts[0]) or name.startswith("~") or name[1:2] == ":"
    return is_absolute or ".." in parts or "\0" in name


def loads_from_outside(name: str, value: Any, *, is_given: bool) -> bool:
    """Whether an input names a file outside the folders of its server. Unmarked names of the template are trusted."""
    if isinstance(value, (int, float)) or name in PROMPT_INPUTS or name.startswith("text_"):
        return False
    return any(
        leaves_folder(text) and (is_marked(text) or (is_given and name in FILE_INPUTS)) for text in _texts_in(value)
    )


def _texts_in(value: Any) -> Iterator[str]:
    """Every text in a value. Servers unwrap `{"__value__": …}`, and some nodes take an object of file names."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
