"""What is known about ComfyUI's own node classes, and cannot be asked of a server."""

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
"""Classes of which it is known that they make no more than one picture of one picture."""
LISTED = frozenset(
    """SaveImage SaveAnimatedPNG SaveAnimatedWEBP SaveVideo SaveWEBM SaveLatent SaveAudio SaveAudioMP3 SaveAudioOpus
    SaveGLB SaveSVGNode""".split()
)
"""Classes that list what they save, so that a listing which is missing is a result which is missing."""
UNLISTED = frozenset(
    """CheckpointSave CLIPSave VAESave ModelSave LoraSave SaveLoRA SaveImageDataSetToFolder
    SaveImageTextDataSetToFolder""".split()
)
"""Classes that save and list nothing: the server's own files, not results to bring home."""
MODEL_ENDINGS = (".safetensors", ".ckpt", ".pt", ".pt2", ".pth", ".bin", ".gguf", ".sft", ".onnx", ".pkl")
FILES = re.compile("Image|Mask|Video|Audio|3D|Latent")
FILE_INPUTS = frozenset({"image", "mask", "video", "audio", "file", "model_file", "latent"})
PROMPT_INPUTS = frozenset({"text", "prompt", "positive", "negative"})
MARKS = ("[input]", "[output]", "[temp]")
"""What ComfyUI reads behind the name of a file: the folder in which it lies."""


def takes_file(class_type: str, input_name: str) -> bool:
    """Whether an input is the name of a file in the server's input folder, as far as names tell."""
    return input_name in FILE_INPUTS and FILES.search(class_type.partition("Load")[2]) is not None


def is_marked(value: str) -> bool:
    """Whether the name of a file says in which folder of the server it lies."""
    return value.rstrip().endswith(MARKS)


def leaves_folder(value: str) -> bool:
    """Whether the name of a file at a server, marked or not, is absolute or leads out of the folder it lies in."""
    name = value.rstrip()
    mark = next((mark for mark in MARKS if name.endswith(mark)), "")
    name = name.removesuffix(mark)
    # ComfyUI drops the letter before the mark, whatever it is.
    return _leads_out(name) or (bool(mark) and _leads_out(name[:-1]))


def _leads_out(name: str) -> bool:
    parts = [part.strip() for part in name.replace("\\", "/").split("/")]
    is_absolute = (len(parts) > 1 and not parts[0]) or name.startswith("~") or name[1:2] == ":"
    return is_absolute or ".." in parts or "\0" in name


def loads_from_outside(name: str, value: Any, *, is_given: bool) -> bool:
    """Whether an input of a node names a file outside the folders of its server, however deep in its value.

    What the template itself has without a mark is the word of whoever set E3 up; what is `given` is not. Prompts are
    texts, whatever they look like.
    """
    if name in PROMPT_INPUTS or name.startswith("text_"):
        return False
    return any(
        leaves_folder(text) and (is_marked(text) or (is_given and name in FILE_INPUTS)) for text in _texts_in(value)
    )


def _texts_in(value: Any) -> Iterator[str]:
    """Every text in a value: servers unwrap `{"__value__": …}`, and some nodes take an object of file names."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            waiting += found.values()
        elif isinstance(found, list):
            waiting += found
