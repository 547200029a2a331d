"""The folders that job files are dropped into."""

from __future__ import annotations

import os

from comfyui_agent.config.workflows import Workflows
from comfyui_agent.config.workspace import Workspace
from comfyui_agent.domain.kinds import FOLDERS


class NoFolder(Exception):
    """There is no folder to watch: what to do."""


def make_folders(workspace: Workspace) -> None:
    """Create the folders that are missing. NoFolder if this is no workspace; Complaints about `workflows.yaml`."""
    folder = workspace.processing
    if not folder.is_dir() and workspace.config is None:
        missing = f"there is no workspace in {workspace.root}: it has no config/global_config.yaml"
        raise NoFolder(f"{missing}. Make one with e3 init, or name one with -C")
    for base in (folder, workspace.root / workspace.settings.paths.jobs_finished):
        for kind in sorted(set(FOLDERS.values())):
            try:
                (base / kind).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise NoFolder(f"the folder {base / kind} cannot be made: {error.strerror}") from None
            if not os.access(base / kind, os.R_OK | os.W_OK | os.X_OK):
                raise NoFolder(f"the folder {base / kind} cannot be used: give yourself the right to write there")
    Workflows(workspace).refresh()
