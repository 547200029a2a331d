"""A recipe: the inputs of a workflow and their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """One entry of `workflows.yaml`. `inputs` maps a name to the places of its value."""

    workflow_id: str
    template_path: str
    description: str = ""
    required_inputs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """The names of places, by place."""
        return {place: name for name, places in self.inputs.items() for place in places}
