"""YAML files of a workspace, read as a whole: one that cannot be read is a complaint that says where and why."""

from __future__ import annotations

import os
from pathlib import Path

from comfyui_agent.config.complaints import Complaint, Complaints
from comfyui_agent.config.yaml_text import NotYaml, Parsed, parse

LARGEST = 4 * 1024 * 1024


def shown_path(path: Path) -> str:
    """A path as people typed it, if it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def read_document(path: Path, wanted: str) -> Parsed:
    """A mapping, or nothing at all; Complaints for anything else, saying what is `wanted`."""
    name = shown_path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise Complaints([Complaint(name, "", "it is too large")])
        parsed = parse(path.read_bytes())
    except OSError as error:
        raise Complaints([Complaint(name, "", f"it cannot be read: {error.strerror}")]) from None
    except NotYaml as error:
        raise Complaints([Complaint(f"{name}:{error.line}" if error.line else name, "", error.message)]) from None
    if not isinstance(parsed.value, (dict, type(None))):
        raise Complaints([Complaint(name, "", f"it is not a mapping: write {wanted}")])
    return parsed
