"""What result files are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import folder_of
from comfyui_agent.store.records import Leased

MOST_KEPT_ASIDE = 10_000
EXTENSIONS = frozenset(
    """png jpg jpeg webp gif avif bmp tif tiff svg mp4 webm mkv mov avi mp3 wav flac ogg opus m4a aac glb gltf obj fbx
    stl ply usdz safetensors latent txt json""".split()  # noqa: SIM905 - a list of words
)
"""Endings that are taken for an extension, which then follows the bytes; `v1.5` is part of a name."""


def stem_of(leased: Leased, workspace: Workspace) -> Path:
    """Where the results go, without the extension: it follows the bytes. ValueError if that is not in the workspace."""
    if leased.file_path:
        path = workspace.inside(leased.file_path)
        return path.with_suffix("") if path.suffix.lower().lstrip(".") in EXTENSIONS else path
    name = leased.config_name
    if name.lower().endswith((".yaml", ".yml")):
        name = name.rpartition(".")[0]
    if not name or name in (".", "..") or any(each in name for each in "/\\\0"):
        raise ValueError(f"config_name {leased.config_name!r} cannot name a file: give the job a file_path")
    return workspace.finished(folder_of(leased.job_type)) / name


def targets(stem: Path, extensions: Sequence[str]) -> list[Path]:
    """The first result has the plain name, the next is `NAME_2.ext`."""
    return [
        stem.with_name(f"{stem.name}.{extension}" if number == 1 else f"{stem.name}_{number}.{extension}")
        for number, extension in enumerate(extensions, start=1)
    ]


def keep_aside(path: Path) -> Path:
    """Give a file that is no job's another name: nothing of anyone is overwritten."""
    for number in range(1, MOST_KEPT_ASIDE):
        kept = path.with_name(f"{path.stem}.kept-{number}{path.suffix}")
        if not kept.exists():
            return path.rename(kept)
    raise FileExistsError(f"{path} is in the way, and so are {MOST_KEPT_ASIDE} copies of it")
