"""Finding a workspace and its settings: the file, what `.env` says, and on top the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfyui_agent.config.complaints import Complaint, Complaints, check, dotted, shown
from comfyui_agent.config.settings import Settings
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.config.yaml_text import NotYaml, Parsed, parse

PREFIX = "E3_"
CONFIG = "E3_CONFIG"
NOT_SETTINGS = frozenset({CONFIG, "E3_COMFYUI_URL", "E3_COMFYUI_DIR", "E3_COMFYUI_PYTHON"})
DOCUMENTED = {
    "COMFY_MAX_RETRIES": ("books", "retry_limit"),
    "COMFY_RETRY_BACKOFF_SEC": ("retry_backoff_seconds",),
    "COMFY_ALLOW_PARALLEL_PAGES": ("books", "parallel_pages"),
}
USUAL = ("config/global_config.yaml", "comfyui_agent/config/global_config.yaml")
LARGEST = 4 * 1024 * 1024


@dataclass
class _Sources:
    """Values by path, and where each came from."""

    tree: dict[str, Any] = field(default_factory=dict)
    variables: dict[tuple[str, ...], str] = field(default_factory=dict)
    file: str = ""
    parsed: Parsed | None = None

    def where(self, path: tuple[Any, ...]) -> str:
        for length in range(len(path), 0, -1):
            if path[:length] in self.variables:
                return self.variables[path[:length]]
        line = self.parsed.line_of(path) if self.parsed else None
        return f"{self.file}:{line}" if line else self.file

    def put(self, variable: str, path: tuple[str, ...], value: str) -> None:
        branch = self.tree
        for section in path[:-1]:
            inner = branch.get(section)
            if not isinstance(inner, dict):
                if section in branch and (section,) in self.variables:
                    raise Complaints([Complaint(variable, "", f"{section} is given as a value, too")])
                branch[section] = inner = {}
            branch = inner
        branch[path[-1]] = value
        self.variables[path] = variable


def load_workspace(folder: Path, environment: Mapping[str, str], config: str | None = None) -> Workspace:
    """The workspace at a folder, or of the configuration that is named. Complaints if something in it is wrong."""
    file = _find(folder, environment, config)
    root = _root_of(file) if file else folder.absolute()
    sources = _Sources()
    if file:
        sources.file, sources.parsed = _shown(file), _read(file)
        sources.tree = sources.parsed.value or {}
        if not isinstance(sources.tree, dict):
            raise Complaints([Complaint(sources.file, "", "it is not a mapping: write lines such as retry_limit: 2")])
    for variable, value in {**_dotenv(root / ".env"), **environment}.items():
        if variable in DOCUMENTED and value.strip():
            sources.put(variable, DOCUMENTED[variable], value)
    for variable, value in {**_dotenv(root / ".env"), **environment}.items():
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            sources.put(variable, tuple(variable.removeprefix(PREFIX).lower().split("__")), value)
    settings = check(Settings, sources.tree, sources.where)
    workspace = Workspace(root, settings, config=file)
    _check_paths(workspace, sources)
    return workspace


def _find(folder: Path, environment: Mapping[str, str], config: str | None) -> Path | None:
    named = config or environment.get(CONFIG)
    if named:
        file = folder / Path(named).expanduser()
        if not file.is_file():
            origin = "--config" if config else CONFIG
            raise Complaints([Complaint(origin, "", f"there is no file {file}: name an existing one, or run e3 init")])
        return file.absolute()
    return next((folder.absolute() / usual for usual in USUAL if (folder / usual).is_file()), None)


def _root_of(file: Path) -> Path:
    """The parent of `config` or `comfyui_agent/config`, else the folder of the file."""
    folder = file.parent
    if folder.name != "config":
        return folder
    return folder.parent.parent if folder.parent.name == "comfyui_agent" else folder.parent


def _read(file: Path) -> Parsed:
    try:
        if file.stat().st_size > LARGEST:
            raise Complaints([Complaint(_shown(file), "", "it is too large for a configuration")])
        return parse(file.read_bytes())
    except OSError as error:
        raise Complaints([Complaint(_shown(file), "", f"it cannot be read: {error.strerror}")]) from None
    except NotYaml as error:
        where = f"{_shown(file)}:{error.line}" if error.line else _shown(file)
        raise Complaints([Complaint(where, "", error.message)]) from None


def _dotenv(file: Path) -> dict[str, str]:
    """`NAME=value` a line; what else such files hold is none of our business."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            value = value.strip()
            quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
            found[name.strip()] = value[1:-1] if quoted else value.split(" #")[0].strip()
    return {name: value for name, value in found.items() if name.startswith(PREFIX) or name in DOCUMENTED}


def _check_paths(workspace: Workspace, sources: _Sources) -> None:
    """Paths that cannot be what they shall be are said now, not in the middle of the night."""
    paths = workspace.settings.paths

    def complain(path: tuple[str, ...], message: str) -> None:
        raise Complaints([Complaint(sources.where(path), dotted(path), message)])

    try:
        workspace.inside(paths.jobs_finished)
    except ValueError as error:
        complain(("paths", "jobs_finished"), f"{error}: results stay in it, write a folder there")
    for name in ("jobs_processing", "jobs_finished", "workflows"):
        folder = workspace.root / getattr(paths, name)
        in_the_way = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)
        if in_the_way:
            complain(("paths", name), f"{in_the_way} is a file: write the name of a folder")
    if "://" not in workspace.database and Path(workspace.database).is_dir():
        key = ("database", "url") if workspace.settings.database.url else ("paths", "database")
        complain(key, f"{shown(workspace.database)} is a folder: write the name of a file")


def _shown(file: Path) -> str:
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative
