"""Where the values of each combination of a sweep go, and how much room they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.batches.shared_inputs import Shared
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import bind
from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.domain.sizes import bytes_of


@dataclass(frozen=True)
class Column:
    """An axis, and the values of each of its names in the type of that name's place."""

    axis: Axis
    values: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class SweepBinding:
    """Binds the values of a combination. `recipe` requires only what neither the template nor an axis gives."""

    workflow: Workflow
    recipe: Recipe
    inputs: Mapping[str, Any]
    columns: Sequence[Column]

    def bound(self, chosen: Sequence[int]) -> dict[str, Any]:
        """Values by place for a combination, given by the index of the value of each axis."""
        given = dict(self.inputs)
        for index, column in zip(chosen, self.columns, strict=True):
            given |= {name: values[index] for name, values in column.values.items()}
        return bind(self.workflow.places, self.recipe, given)

    def places_of(self, name: str) -> list[str]:
        return self.workflow.places.reached(name, self.recipe)

    def unvarying(self) -> dict[str, Any]:
        """The values by place that are the same in every combination."""
        names = [name for column in self.columns if len(column.axis.values) > 1 for name in column.values]
        varying = {where for name in names for where in self.places_of(name)}
        bound = self.bound([0] * len(self.columns))
        return {where: value for where, value in bound.items() if where not in varying}

    def sizes_of(self, column: Column) -> list[int]:
        """The bytes that each value of an axis takes in a job: at all its places, and in the metadata."""
        times = 1 + sum(len(self.places_of(name)) for name in column.values)
        return [times * bytes_of(value) for value in column.axis.values]


class LargestMember:
    """The member of a sweep whose values take the most room."""

    def __init__(self, binding: SweepBinding, combinations: Combinations) -> None:
        sizes = [binding.sizes_of(column) for column in binding.columns]
        chosen: Sequence[int]
        if combinations.mode is Mode.MATRIX:
            chosen = [each.index(max(each)) for each in sizes]
        else:
            chosen = max(combinations, key=lambda some: sum(each[at] for each, at in zip(sizes, some, strict=True)))
        values = {axis.name: axis.values[at] for axis, at in zip(combinations.axes, chosen, strict=True)}
        self.bound = binding.bound(chosen)
        self.metadata = {"combination": values}
        self._excess = sum(each[at] - sum(each) / len(each) for each, at in zip(sizes, chosen, strict=True))

    def average_bytes(self, shared: Shared) -> int:
        """About how much an average member takes."""
        return bytes_of(shared.own(self.bound)) + bytes_of(self.metadata) - int(self._excess)
