"""Finding a workspace and its settings: the file, then `.env`, then the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from comfyui_agent.config.settings import Settings
from comfyui_agent.config.validation import Complaints, Document, check, dotted, shown, shown_path, without_empty
from comfyui_agent.config.workspace import Workspace

PREFIX = "E3_"
CONFIG = "E3_CONFIG"
NOT_SETTINGS = frozenset(
    {
        CONFIG,
        "E3_TEST_POSTGRES",
        "E3_CLIENTS_DIR",
        *(f"E3_COMFYUI_{name}" for name in ("URL", "DIR", "PYTHON", "FRONTEND")),
    }
)
DOCUMENTED = {
    "COMFY_MAX_RETRIES": ("books", "retry_limit"),
    "COMFY_RETRY_BACKOFF_SEC": ("retry_backoff_seconds",),
    "COMFY_ALLOW_PARALLEL_PAGES": ("books", "parallel_pages"),
}
USUAL = ("config/global_config.yaml", "comfyui_agent/config/global_config.yaml")


class _Sources:
    def __init__(self, document: Document | None) -> None:
        self._document = document
        self._variables: dict[tuple[str, ...], str] = {}
        self.tree = without_empty(document.tree) if document else {}

    def where(self, path: tuple[Any, ...]) -> str:
        for known, variable in self._variables.items():
            if path and known[: len(path)] == path[: len(known)]:  # it gave this value, one around it, or one in it
                return variable
        return self._document.where(path) if self._document else ""

    def put(self, variable: str, path: tuple[str, ...], value: str) -> None:
        branch = self.tree
        for section in path[:-1]:
            inner = branch.get(section)
            if not isinstance(inner, dict):
                if section in branch and (section,) in self._variables:
                    raise Complaints.about(variable, f"{section} is given as a value, too")
                branch[section] = inner = {}
            branch = inner
        branch[path[-1]] = value
        self._variables[path] = variable


def load_workspace(folder: Path, environment: Mapping[str, str], config: str | None = None) -> Workspace:
    """The workspace at a folder, or of the named configuration. Complaints if a setting is wrong."""
    file = _find(folder, environment, config)
    root = _root_of(file) if file else folder.absolute()
    sources = _Sources(Document(file, "lines such as retry_limit: 2") if file else None)
    for variables in (_dotenv(root / ".env"), environment):
        _overlay(sources, variables)
    settings = check(Settings, sources.tree, sources.where)
    workspace = Workspace(root, settings, config=file)
    _check_paths(workspace, sources)
    return workspace


def _overlay(sources: _Sources, variables: Mapping[str, str]) -> None:
    for variable, path in DOCUMENTED.items():
        if variables.get(variable, "").strip():
            sources.put(variable, path, variables[variable])
    for variable, value in variables.items():
        if variable.startswith(PREFIX) and variable not in NOT_SETTINGS:
            sources.put(variable, tuple(variable.removeprefix(PREFIX).lower().split("__")), value)


def _find(folder: Path, environment: Mapping[str, str], config: str | None) -> Path | None:
    named = config or environment.get(CONFIG)
    if named:
        origin = "--config" if config else CONFIG
        try:
            file = folder / Path(named).expanduser()
            is_there = file.is_file()
        except (OSError, RuntimeError, ValueError) as error:
            raise Complaints.about(origin, f"there is no file {shown(named)}: {error}") from None
        if not is_there:
            raise Complaints.about(origin, f"there is no file {file}: name an existing one, or run e3 init")
        return file.absolute()
    try:
        found = next((folder.absolute() / usual for usual in USUAL if (folder / usual).exists()), None)
    except OSError as error:
        raise Complaints.about(error.filename or str(folder), f"it cannot be read: {error.strerror}") from None
    if found is not None and not found.is_file():
        raise Complaints.about(shown_path(found), "it is no file: put a configuration there, or remove it")
    return found


def _root_of(file: Path) -> Path:
    """The parent of `config` or `comfyui_agent/config`, else the folder of the file."""
    folder = file.parent
    if folder.name != "config":
        return folder
    return folder.parent.parent if folder.parent.name == "comfyui_agent" else folder.parent


def _dotenv(file: Path) -> dict[str, str]:
    """The `NAME=value` lines that are settings. Other lines are ignored."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            quoted = re.match(r"""\s*(['"])(.*?)\1\s*(#.*)?$""", value)
            found[name.strip()] = quoted[2] if quoted else re.split(r"(?:^|\s)#", value)[0].strip()
    return {name: value for name, value in found.items() if name.startswith(PREFIX) or name in DOCUMENTED}


def _check_paths(workspace: Workspace, sources: _Sources) -> None:
    """Complain at once about paths that cannot be a folder or a file."""
    paths = workspace.settings.paths

    def complain(path: tuple[str, ...], message: str) -> NoReturn:
        raise Complaints.about(sources.where(path), message, dotted(path))

    try:
        workspace.inside(paths.jobs_finished)
    except ValueError as error:
        complain(("paths", "jobs_finished"), f"{error}: results stay in it, write a folder there")
    for name in ("jobs_processing", "jobs_finished", "workflows"):
        folder = workspace.root / getattr(paths, name)
        try:
            in_the_way = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)
        except (OSError, ValueError) as error:
            complain(("paths", name), f"{shown(getattr(paths, name))} cannot be a folder: {error}")
        if in_the_way:
            complain(("paths", name), f"{in_the_way} is a file: write the name of a folder")
    if workspace.database_file is not None:
        key = ("database", "url") if workspace.settings.database.url else ("paths", "database")
        try:
            is_folder = workspace.database_file.is_dir()
        except (OSError, ValueError) as error:
            complain(key, f"{shown(workspace.database)} cannot be a file: {error}")
        if is_folder:
            complain(key, f"{shown(workspace.database)} is a folder: write the name of a file")
