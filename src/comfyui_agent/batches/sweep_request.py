"""What people ask for when they submit a sweep: a request, or a file `sweep.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from comfyui_agent.config.settings import Priority
from comfyui_agent.config.validation import Document, Section, check
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.combinations import Mode
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY

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
    pictures: Mapping[str, str] = field(default_factory=dict)
    """Stored input pictures of the workflow by place, where no value of the sweep goes."""


class GridSaid(Section):
    x: str = Field(default="", description="the name of an axis, as below set")
    y: str = Field(default="", description="the name of an axis, as below set")
    pages: str = Field(default="", description="the name of an axis, as below set")


class SweepFile(Section):
    name: str = Field(default="", max_length=200, description="a name in quotes, such as knights")
    workflow: str = Field(min_length=1, description="a workflow of this workspace, or the path of a template")
    mode: Mode = Field(default=Mode.MATRIX, description="matrix or linear")
    set: dict[str, Any] = Field(min_length=1, description='a mapping of axes to values, such as "3.seed": "1..4"')
    inputs: dict[str, Any] = Field(default={}, description="a mapping of names to values, such as prompt: a knight")
    job_type: str = Field(default="", description="T2I, T2V or another kind of job")
    priority: Priority | None = Field(default=None, description="a whole number; lower runs earlier, such as 50")
    grid: GridSaid = Field(default=GridSaid(), description="a mapping with x, y or pages")


class SweepText(Document):
    """The content of a sweep file. Complaints if it is wrong."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "lines such as workflow: and set:", "workflow: and set:")
        self.said = check(SweepFile, self.given, self.where)
