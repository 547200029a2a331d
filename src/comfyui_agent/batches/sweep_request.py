"""What people ask for when they submit a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY

AUTO = "auto"
"""A value that E3 replaces with a suitable one of the server."""
Definitions = Mapping[str, Sequence[Mapping[str, Any]]]
"""Node classes, and how each server that was asked defines them."""
Keep = Callable[[Workflow, Mapping[str, Any]], dict[str, str]]
"""Stores the local pictures that values name and returns them by place. Unbindable if one cannot be used."""


@dataclass(frozen=True)
class GridAxes:
    """The axes of the grid. An empty name leaves the choice to E3."""

    x: str = ""
    y: str = ""
    pages: str = ""

    def chosen(self) -> dict[str, str]:
        return {key: name for key, name in vars(self).items() if name}


@dataclass(frozen=True)
class SweepRequest:
    """A sweep to be made. `sets` maps `3.seed,11.seed` to its values, as a text or as a list."""

    workflow: Workflow
    sets: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.MATRIX
    name: str = ""
    job_type: str = ""
    priority: int = DEFAULT_PRIORITY
    grid: GridAxes = field(default_factory=GridAxes)
    skip_bad: bool = False
    batch_id: str = ""
    """The id of the batch. Empty: a new one."""
