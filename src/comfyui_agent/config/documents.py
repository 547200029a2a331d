"""YAML files of a workspace, with the line of every key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from comfyui_agent.config.validation import Complaints
from comfyui_agent.config.yaml_text import NotYaml, parse

LARGEST = 4 * 1024 * 1024


def shown_path(path: Path) -> str:
    """A path for messages: relative if it lies below the current folder."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


class Document:
    """A YAML file with a mapping, or an empty one unless `first` names keys to begin with. `wanted` is what to write
    into it. Complaints if it cannot be read or holds something else."""

    def __init__(self, path: Path, wanted: str, first: str = "") -> None:
        self.name = shown_path(path)
        try:
            if path.stat().st_size > LARGEST:
                raise Complaints.about(self.name, "it is too large")
            self._parsed = parse(path.read_bytes())
        except OSError as error:
            raise Complaints.about(self.name, f"it cannot be read: {error.strerror}") from None
        except NotYaml as error:
            raise Complaints.about(at_line(self.name, error.line), error.message) from None
        value = self._parsed.value
        if value is None and first:
            raise Complaints.about(self.name, f"it is empty: write {first}")
        if not isinstance(value, (dict, type(None))):
            raise Complaints.about(self.name, f"it is not a mapping: write {wanted}")
        self.tree: dict[str, Any] = value or {}

    @property
    def given(self) -> dict[str, Any]:
        """The keys that have a value."""
        return {key: value for key, value in self.tree.items() if value is not None}

    def where(self, path: tuple[Any, ...]) -> str:
        """File and line of a key, for messages."""
        return at_line(self.name, self._parsed.line_of(path))


def without_empty(tree: dict[str, Any]) -> dict[str, Any]:
    """A mapping without the keys that have no value, as in a section whose lines are all comments."""
    kept = {key: value for key, value in tree.items() if value is not None}
    return {key: without_empty(value) if isinstance(value, dict) else value for key, value in kept.items()}


def at_line(name: str, line: int | None) -> str:
    return f"{name}:{line}" if line else name
