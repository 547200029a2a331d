"""What result files are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import count
from pathlib import Path, PurePath

from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import ending_of, folder_of
from comfyui_agent.store.records import Leased


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


def targets(stem: Path, extensions: Sequence[str], taken: Collection[str] = ()) -> list[Path]:
    """The first result has the plain name, the next is `NAME_2.ext`. An extension may have a fence in front of it.

    `taken`: paths of the job's other takes. Their numbers are left out, whatever their extensions.
    """
    numbered = re.compile(rf"{re.escape(stem.name)}(?:_([1-9][0-9]*))?\.")
    matches = [numbered.match(PurePath(path).name) for path in taken]
    used = {int(match[1] or 1) for match in matches if match is not None}
    free = (number for number in count(1) if number not in used)
    return [
        stem.with_name(f"{stem.name}.{extension}" if number == 1 else f"{stem.name}_{number}.{extension}")
        for number, extension in zip(free, extensions, strict=False)
    ]


def fence_mark(fence: int) -> str:
    """The part of a name that keeps those of one lease apart from all others."""
    return f"f{fence}."
