"""A sweep: one workflow, rendered for every combination of some values. Nothing is queued here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from comfyui_agent.batches.axes import BadSweep, CountedAxes
from comfyui_agent.batches.members import Shared, share
from comfyui_agent.batches.sweep_request import Definitions, GridAxes, Keep, SweepRequest
from comfyui_agent.batches.sweep_values import LargestMember, SweepBinding, ValueReader
from comfyui_agent.domain.batches import BatchKind, NewBatch, member_name, mint_batch_id
from comfyui_agent.domain.binding import Recipe
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations
from comfyui_agent.domain.drawing import new_seed
from comfyui_agent.domain.jobs import NewJob, too_large
from comfyui_agent.domain.kinds import folder_of, job_type_of
from comfyui_agent.domain.needs import Needs, needs_of_template
from comfyui_agent.domain.values import DrawSeeds

MOST_CELLS = 10_000
"""Nobody could read a grid of more cells."""
MOST_LOOKED_AT = 500


@dataclass(frozen=True)
class Sweep:
    """A checked sweep: its batch, and a job for every combination, made one at a time."""

    batch: NewBatch
    combinations: Combinations
    request: SweepRequest
    warnings: tuple[str, ...]
    stored_bytes: int
    """About how much its members take in the database."""
    _binding: SweepBinding
    _shared: Shared
    _job_type: str
    _keep: Keep

    def __len__(self) -> int:
        return len(self.combinations)

    def needs(self) -> set[Needs]:
        """What its first jobs need."""
        first = [self._binding.bound(self.combinations[index]) for index in range(min(len(self), MOST_LOOKED_AT))]
        return {needs_of_template(self.request.workflow.template, each) for each in first}

    def jobs(self) -> Iterator[NewJob]:
        workflow = self.request.workflow
        digits = max(4, len(str(len(self))))
        varying = [axis.name for axis in self.combinations.axes if len(axis.values) > 1]
        for index in range(len(self)):
            values = self.combinations.values_at(index)
            bound = self._binding.bound(self.combinations[index])
            number = f"{index + 1:0{digits}d}"
            yield NewJob(
                config_name=f"{self.batch.id}_{number}",
                job_type=self._job_type,
                workflow_id=workflow.recipe.workflow_id,
                template=self._shared.template,
                inputs=self._shared.own(bound),
                priority=self.request.priority,
                file_path=f"{self.batch.metadata['folder']}/{member_name(number, values, varying)}.png",
                metadata={"combination": values},
                batch_id=self.batch.id,
                batch_index=index,
                pictures={**self._kept_already(bound), **self._keep(workflow, bound)},
                reuse=workflow.recipe.reuse,
            )

    def _kept_already(self, bound: Mapping[str, Any]) -> dict[str, str]:
        return {where: name for where, name in self.request.pictures.items() if where not in bound}


def define(
    request: SweepRequest,
    counted: CountedAxes,
    finished: str,
    definitions: Definitions,
    *,
    draw: DrawSeeds,
    keep: Keep = lambda *_: {},
    check_cancelled: Callable[[], None] = lambda: None,
    limit_kb: int = sys.maxsize,
) -> Sweep:
    """Check everything that can be known before a sweep is queued. BadSweep says what is wrong. `counted` are the axes
    of the request, `finished` is the folder of results. `check_cancelled` may raise to end the work."""
    warnings = list(counted.warnings)
    reader = ValueReader(request, definitions, draw, keep, check_cancelled)
    columns = reader.columns(counted.axes, warnings)
    try:
        combinations = Combinations([column.axis for column in columns], request.mode)
    except BadAxes as error:
        raise BadSweep(str(error) if columns else "; ".join([str(error), *warnings])) from None
    _check_grid(request.grid, combinations)
    workflow = request.workflow
    binding = SweepBinding(workflow, _lenient(request, combinations.axes), request.inputs, columns, new_seed())
    reader.check(binding)
    largest = LargestMember(binding, combinations)
    if problem := too_large(largest.bound, largest.metadata, limit_kb):
        raise BadSweep(problem)
    shared = share(workflow, binding.unvarying(), len(combinations))
    name = request.name or workflow.recipe.workflow_id
    batch_id = request.batch_id or mint_batch_id(name, "sweep")
    try:
        job_type = request.job_type.upper() or job_type_of(workflow.graph)
        folder = f"{finished.rstrip('/')}/{folder_of(job_type)}/{batch_id}"
    except ValueError as error:
        raise BadSweep(str(error), ("job_type",)) from None
    wants_grid = len(combinations) <= MOST_CELLS
    if not wants_grid:
        warnings.append(f"no grid is made of more than {MOST_CELLS:,} results")
    metadata = {
        "workflow": workflow.recipe.workflow_id,
        "template": workflow.template.hash,
        "mode": request.mode.value,
        "axes": [{"name": axis.name, "places": axis.places, "values": axis.values} for axis in combinations.axes],
        "inputs": dict(request.inputs),
        "shared": shared.as_json(),
        "folder": folder,
        "grid": request.grid.chosen(),
    }
    if names := binding.drawn():
        metadata["drawn"] = {"seed": binding.seed, "inputs": names}
    batch = NewBatch(batch_id, name, BatchKind.SWEEP, metadata, wants_grid=wants_grid)
    stored = len(combinations) * largest.average_bytes(shared)
    return Sweep(batch, combinations, request, tuple(warnings), stored, binding, shared, job_type, keep)


def _lenient(request: SweepRequest, axes: Sequence[Axis]) -> Recipe:
    """The recipe without the required inputs that the template has or an axis gives."""
    recipe, places = request.workflow.recipe, request.workflow.places
    covered = {place for axis in axes for place in axis.places}
    needed = []
    for name in recipe.required_inputs:
        found = places.reached(name, recipe)
        values = [places.all[place].value for place in found]
        is_given = covered >= set(found) or not any(each in (None, "") or "${" in str(each) for each in values)
        if found and (name in request.inputs or not is_given):
            needed.append(name)
    return replace(recipe, required_inputs=tuple(needed))


def _check_grid(grid: GridAxes, combinations: Combinations) -> None:
    known = [axis.name for axis in combinations.axes]
    chosen = grid.chosen()
    for key, name in chosen.items():
        if name not in known:
            raise BadSweep(f"{name!r} is no axis of this sweep; there are {', '.join(known)}", ("grid", key))
    if len(set(chosen.values())) < len(chosen):
        raise BadSweep("grid: x, y and pages need different axes")
