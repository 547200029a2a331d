"""Job types, their result folders, and the file endings of results."""

from __future__ import annotations

import re
from pathlib import PurePath

from comfyui_agent.domain.prompts import Graph, class_of

FOLDERS = {
    "T2I": "image",
    "I2I": "image",
    "T2V": "video",
    "I2V": "video",
    "AUDIO": "audio",
    "T2A": "audio",
    "SPEECH": "speech",
    "TTS": "speech",
    "T2S": "speech",
    "3D": "3d",
}


def folder_of(job_type: str) -> str:
    """The folder of a job type below `jobs/finished`. ValueError for an unknown type."""
    try:
        return FOLDERS[job_type.upper()]
    except KeyError:
        raise ValueError(f"job_type {job_type!r} does not exist: use one of {', '.join(FOLDERS)}") from None


ENDINGS = frozenset(
    """png jpg jpeg webp gif avif apng bmp tif tiff exr hdr psd svg mp4 webm mkv mov avi mp3 wav flac ogg opus m4a aac
    glb gltf obj fbx stl ply usdz splat ksplat spz safetensors latent npy npz txt json csv srt vtt bin""".split()  # noqa: SIM905 - a list of words
)
"""The endings that results may have. A file with another ending is kept as `bin`."""
PART_OF_NAME = re.compile(r"v?[0-9][^.]*", re.IGNORECASE)


def ending_of(name: str) -> str:
    """The ending of a result in lower case, empty in `knight.v1.5`. ValueError for one that no result has: `.py`."""
    ending = PurePath(name).suffix.lstrip(".")
    if not ending or (PART_OF_NAME.fullmatch(ending) and ending.lower() not in ENDINGS):
        return ""
    if ending.lower() not in ENDINGS:
        raise ValueError(
            f"{name[:60]!r} ends in .{ending[:20]}, and no result does: leave the ending out, it follows the bytes, or "
            "write one such as .png"
        )
    return ending.lower()


SAVES = (("Video", "T2V"), ("WEBM", "T2V"), ("Animated", "T2V"), ("Audio", "AUDIO"), ("GLB", "3D"), ("3D", "3D"))
FROM_PICTURES = {"T2I": "I2I", "T2V": "I2V"}


def job_type_of(graph: Graph) -> str:
    """The job type of a workflow, guessed from the names of its saving and loading nodes."""
    classes = [class_of(graph, node_id) for node_id in graph]
    saving = [name for name in classes if "Save" in name or "Combine" in name]
    made = next((kind for word, kind in SAVES for name in saving if word in name), "T2I")
    loads = any("Load" in name and ("Image" in name or "Video" in name) for name in classes)
    return FROM_PICTURES.get(made, made) if loads else made
