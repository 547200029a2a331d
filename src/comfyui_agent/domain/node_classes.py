"""What is known about ComfyUI's own node classes, and cannot be asked of a server."""

from __future__ import annotations

import re

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
LOADS_FILES = re.compile(r"Load.*(Image|Mask|Video|Audio|3D)")
FILE_INPUTS = frozenset({"image", "mask", "video", "audio", "file", "model_file"})


def takes_file(class_type: str, input_name: str) -> bool:
    """Whether an input is the name of a file in the server's input folder, as far as names tell."""
    return input_name in FILE_INPUTS and LOADS_FILES.search(class_type) is not None
