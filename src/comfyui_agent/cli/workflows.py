"""Workflows and lists of values that commands name: found, or one line that says why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from comfyui_agent.cli.output import fail
from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.workflows import NoWorkflow, Workflows
from comfyui_agent.config.workspace import Workspace

if TYPE_CHECKING:
    from comfyui_agent.lab.payloads import Payload

LARGEST_LIST = 64 * 1024 * 1024


def found_at(name: str, folder: Path) -> Path:
    """A file by its path, relative to the current folder or else to the workspace."""
    path = Path(name).expanduser()
    return path if path.exists() or not (folder / path).exists() else folder / path


def workflows_of(workspace: Workspace) -> Workflows:
    found = Workflows(workspace)
    try:
        found.refresh()
    except Complaints as error:
        fail(str(error), code=2)
    return found


def payload_named(name: str, workspace: Workspace, folder: Path, *, code: int = 2) -> Payload:
    """What a lab sends: a file, else a workflow of the workspace with its defaults, else a sample."""
    from comfyui_agent.lab.payloads import PayloadError, bound_to_defaults, read_payload, sample_path

    try:
        path = found_at(name, folder)
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # a name that no file can have, or ~ of nobody
        fail(f"{name[:100]!r} cannot be a workflow: {getattr(error, 'strerror', None) or error}", code=code)
    try:
        if is_file:
            return read_payload(path)
        if name.lower().endswith(".json"):
            fail(f"there is no file {name}: give a workflow in API format, or an id of workflows.yaml", code=code)
        workflows = workflows_of(workspace)
        sample = sample_path(name, workspace.root)
        if sample is not None and name not in workflows.recipes:
            return read_payload(sample)
        return bound_to_defaults(workflows.find(name), workspace)
    except (NoWorkflow, PayloadError) as error:
        fail(str(error), code=code)


def lines_below(base: Path) -> Callable[[str], Sequence[str]]:
    """Reads the lists that `@name` stands for, relative to a folder."""

    def read(name: str) -> Sequence[str]:
        path = base / Path(name).expanduser()
        try:
            if path.stat().st_size > LARGEST_LIST:
                raise ValueError(f"{path} is too large for a list of values")
            return path.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8") from None

    return read
