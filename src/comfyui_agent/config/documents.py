"""YAML files of a workspace, read as a whole: one that cannot be read is a complaint that says where and why."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from comfyui_agent.config.validation import Complaint, Complaints
from comfyui_agent.config.yaml_text import NotYaml, Parsed, parse

LARGEST = 4 * 1024 * 1024


def shown_path(path: Path) -> str:
    """A path as people typed it, if it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


class Document:
    """A YAML file that must say something: what it says, keys without a value left out, and where in it.

    Complaints if it cannot be read or is empty; `first` are the keys to begin with.
    """

    def __init__(self, path: Path, wanted: str, first: str) -> None:
        self.name = shown_path(path)
        self._parsed = read_document(path, wanted)
        if self._parsed.value is None:
            raise Complaints([Complaint(self.name, "", f"it is empty: write {first}")])
        self.tree = {key: value for key, value in self._parsed.value.items() if value is not None}

    def where(self, key: tuple[Any, ...]) -> str:
        line = self._parsed.line_of(key)
        return f"{self.name}:{line}" if line else self.name


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
