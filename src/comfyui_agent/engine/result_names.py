"""What result files are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import ending_of, folder_of
from comfyui_agent.store.records import Leased

MOST_KEPT_ASIDE = 10_000


def stem_of(leased: Leased, workspace: Workspace) -> Path:
    """Where the results go, without the extension: it follows the bytes. ValueError if no result may lie there."""
    if leased.file_path:
        path = workspace.inside(leased.file_path)
        workspace.check_result(path)
        return path.with_suffix("") if ending_of(path.name) else path
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
