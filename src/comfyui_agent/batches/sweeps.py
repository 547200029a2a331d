"""A sweep: one workflow, rendered for every combination of some values. Nothing is queued here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from comfyui_agent.batches.axes import BadSweep, CountedAxes, CountedAxis
from comfyui_agent.batches.shared_inputs import Shared, share
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import BatchKind, NewBatch, member_name, mint_batch_id
from comfyui_agent.domain.binding import TOKEN, Places, Unbindable, bind
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, NewJob
from comfyui_agent.domain.kinds import folder_of, job_type_of
from comfyui_agent.domain.placement import NoSuchPlace
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.domain.sizes import bytes_of, too_large
from comfyui_agent.domain.value_types import BadValue, first_fit, text_of, type_of
from comfyui_agent.domain.values import Token

MOST_CELLS = 10_000
"""A grid of more than these shows nothing."""
AUTO = "auto"
MOST_NAMED = 3
MOST_WARNINGS = 100

Definitions = Mapping[str, Sequence[Mapping[str, Any]]]
"""Node classes, and what each server that was asked says about them."""
Keep = Callable[[Workflow, Mapping[str, Any]], dict[str, str]]
"""Keeps the local pictures that values name, by place; Unbindable if one cannot be used."""


@dataclass(frozen=True)
class GridAxes:
    """Which axis goes where in the grid; empty where people did not say."""

    x: str = ""
    y: str = ""
    pages: str = ""


@dataclass(frozen=True)
class SweepRequest:
    """What people ask for. `sets` maps `3.seed,11.seed` to its values, as a text or as a list."""

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
    """The id that the batch shall have; else one is minted."""


@dataclass(frozen=True)
class _Column:
    """An axis, and the value of each name that it stands for, in the type of that name's place."""

    axis: Axis
    values: Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Sweep:
    """A sweep that was checked: its batch, and a job for every combination, made one at a time."""

    batch: NewBatch
    combinations: Combinations
    workflow: Workflow
    warnings: tuple[str, ...]
    stored_bytes: int
    """About how much its members take in the database."""
    _binding: _Binding
    _shared: Shared
    _folder: str
    _job_type: str
    _priority: int
    _keep: Keep

    def __len__(self) -> int:
        return len(self.combinations)

    def jobs(self) -> Iterator[NewJob]:
        """Every job in its order. The template is never changed: each job has its own values."""
        digits = max(4, len(str(len(self))))
        for index in range(len(self)):
            values = self.combinations.values_at(index)
            bound = self._binding.bound(self.combinations[index])
            number = f"{index + 1:0{digits}d}"
            yield NewJob(
                config_name=f"{self.batch.id}_{number}",
                job_type=self._job_type,
                workflow_id=self.workflow.recipe.workflow_id,
                template=self._shared.template,
                inputs=self._shared.own(bound),
                priority=self._priority,
                file_path=f"{self._folder}/{member_name(number, values, self.varying)}.png",
                metadata={"combination": values},
                batch_id=self.batch.id,
                batch_index=index,
                pictures=self._keep(self.workflow, bound),
            )

    @property
    def varying(self) -> list[str]:
        """Axes with more than one value: those that tell the results apart."""
        return [axis.name for axis in self.combinations.axes if len(axis.values) > 1]


@dataclass(frozen=True)
class _Binding:
    """Where the values of each combination go."""

    workflow: Workflow
    recipe: Recipe
    inputs: Mapping[str, Any]
    columns: Sequence[_Column]

    def bound(self, chosen: Sequence[int]) -> dict[str, Any]:
        given = dict(self.inputs)
        for number, column in enumerate(self.columns):
            given |= {name: values[chosen[number]] for name, values in column.values.items()}
        return bind(self.workflow.places, self.recipe, given)

    def unvarying(self) -> dict[str, Any]:
        """The values by place that are the same in every combination."""
        names = [name for column in self.columns if len(column.axis.values) > 1 for name in column.values]
        varying = {where for name in names for where in _places_of(self.workflow.places, name, self)}
        bound = self.bound([0] * len(self.columns))
        return {where: value for where, value in bound.items() if where not in varying}

    def sizes_of(self, column: _Column) -> list[int]:
        """What each value of an axis takes in a job: at all its places, and in the metadata."""
        times = 1 + sum(len(_places_of(self.workflow.places, name, self)) for name in column.values)
        return [times * bytes_of(value) for value in column.axis.values]

    def key_of(self, name: str) -> tuple[str, ...]:
        """Where a file says what goes by a name."""
        if name in self.inputs:
            return "inputs", name
        return next((("set", column.axis.name) for column in self.columns if name in column.values), ())


def define(
    wish: SweepRequest,
    counted: CountedAxes,
    finished: str,
    definitions: Definitions,
    *,
    draw: Callable[[int], Sequence[int]],
    keep: Keep = lambda *_: {},
    look_up: Callable[[], None] = lambda: None,
    limit_kb: int = sys.maxsize,
) -> Sweep:
    """Check all that can be known before anything is queued; BadSweep says what is wrong.

    `counted` are the axes of the wish. `finished` is the folder of results, relative to the workspace; `limit_kb` is
    how large a job may be. `look_up` is called again and again meanwhile, and may raise to end it.
    """
    warnings = list(counted.warnings)
    reading = _Reading(wish, definitions, draw, keep, look_up)
    columns = reading.columns(counted.axes, warnings)
    try:
        combinations = Combinations([column.axis for column in columns], wish.mode)
    except BadAxes as error:
        raise BadSweep("; ".join([str(error), *warnings]) if not columns else str(error)) from None
    _check_grid(wish.grid, combinations)
    binding = _Binding(wish.workflow, _lenient(wish, combinations.axes), wish.inputs, columns)
    reading.check(binding)
    largest = _Largest(binding, combinations)
    if problem := too_large(largest.bound, largest.metadata, limit_kb):
        raise BadSweep(problem)
    shared = share(wish.workflow, binding.unvarying(), len(combinations))
    stored = len(combinations) * largest.usual_bytes(shared)
    name = wish.name or wish.workflow.recipe.workflow_id
    batch_id = wish.batch_id or mint_batch_id(name, "sweep")
    try:
        job_type = wish.job_type.upper() or job_type_of(wish.workflow.graph)
        folder = f"{finished.rstrip('/')}/{folder_of(job_type)}/{batch_id}"
    except ValueError as error:
        raise BadSweep(str(error), ("job_type",)) from None
    metadata = {
        "workflow": wish.workflow.recipe.workflow_id,
        "template": wish.workflow.template.hash,
        "mode": wish.mode.value,
        "axes": [{"name": axis.name, "places": axis.places, "values": axis.values} for axis in combinations.axes],
        "inputs": dict(wish.inputs),
        "shared": shared.as_json(),
        "folder": folder,
        "grid": {key: value for key, value in vars(wish.grid).items() if value},
    }
    wants_grid = len(combinations) <= MOST_CELLS
    if not wants_grid:
        warnings.append(f"no grid is made of more than {MOST_CELLS:,} results")
    batch = NewBatch(batch_id, name, BatchKind.SWEEP, metadata, wants_grid=wants_grid)
    return Sweep(
        batch,
        combinations,
        wish.workflow,
        tuple(warnings),
        stored,
        binding,
        shared,
        folder,
        job_type,
        wish.priority,
        keep,
    )


class _Largest:
    """The largest member of a sweep."""

    def __init__(self, binding: _Binding, combinations: Combinations) -> None:
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

    def usual_bytes(self, shared: Shared) -> int:
        """What a member takes on average, about: as this one, with values of the usual length."""
        return bytes_of(shared.own(self.bound)) + bytes_of(self.metadata) - int(self._excess)


class _Reading:
    """Reads axes, and holds values against what their places take."""

    def __init__(
        self,
        wish: SweepRequest,
        definitions: Definitions,
        draw: Callable[[int], Sequence[int]],
        keep: Keep,
        look_up: Callable[[], None],
    ) -> None:
        self._wish = wish
        self._places = wish.workflow.places
        self._definitions = definitions
        self._draw = draw
        self._keep = keep
        self._look_up = look_up

    def columns(self, axes: Sequence[CountedAxis], warnings: list[str]) -> list[_Column]:
        """Every axis with its values, and a warning for whatever was left out."""
        columns: list[_Column] = []
        for axis in axes:
            try:
                columns.append(self._column(axis, warnings))
            except BadSweep as error:
                if not self._wish.skip_bad:
                    raise
                warnings.append(f"{error}; left out")
        return columns

    def _column(self, axis: CountedAxis, warnings: list[str]) -> _Column:
        values: dict[str, list[Any]] = {name: [] for name in axis.names}
        problems: list[str] = []
        for token in axis.values.tokens(self._draw):
            self._look_up()
            try:
                row = [self._fit(token, name, axis.places[name]) for name in axis.names]
            except (BadValue, Unbindable) as error:
                problems.append(str(error).removeprefix(f"{axis.key[-1]}: "))
                if not self._wish.skip_bad:
                    raise BadSweep(problems[0], axis.key) from None
                continue
            for name, value in zip(axis.names, row, strict=True):
                values[name].append(value)
        if not values[axis.names[0]]:
            raise BadSweep(f"no value is left: {'; '.join(problems[:MOST_NAMED])}", axis.key)
        warnings += [f"{BadSweep(problem, axis.key)}; left out" for problem in problems[:MOST_WARNINGS]]
        if len(problems) > MOST_WARNINGS:
            warnings.append(f"{BadSweep(f'{len(problems) - MOST_WARNINGS:,} more values', axis.key)} were left out")
        found = {name: tuple(column) for name, column in values.items()}
        return _Column(Axis(axis.name, axis.addressed, found[axis.names[0]]), found)

    def _fit(self, token: Token, name: str, places: Sequence[str]) -> Any:
        """A value that fits all places of a name, and whose file is there if it names one."""
        found = [self._convert(token, place) for place in places or self._places.placeholders[name]]
        for place in places:
            self._keep(self._wish.workflow, {place: found[0]})
        return found[0]

    def _convert(self, token: Token, place: str) -> Any:
        """As the place takes it; one server that takes it is enough."""
        known = self._places.all[place]
        if token.text == AUTO and known.value == AUTO:
            return AUTO
        if isinstance(known.value, str) and TOKEN.search(known.value) and not TOKEN.fullmatch(known.value):
            return token.text  # it becomes a part of a text
        definitions = self._definitions.get(known.class_type) or (None,)
        return first_fit(token, [type_of(known.value, each, known.name) for each in definitions], place)

    def check(self, binding: _Binding) -> None:
        """What holds for all, and texts that are put together, as they will stand there."""
        chosen = [0] * len(binding.columns)
        self._check_one(binding, chosen, self._places.all)
        for number, column in enumerate(binding.columns):
            together = {
                place
                for name in column.values
                for place in self._places.placeholders.get(name, ())
                if not TOKEN.fullmatch(str(self._places.all[place].value))
            }
            for index in range(len(column.axis.values)) if together else ():
                self._look_up()
                self._check_one(binding, [*chosen[:number], index, *chosen[number + 1 :]], together)

    def _check_one(self, binding: _Binding, chosen: Sequence[int], places: Collection[str]) -> None:
        try:
            bound = binding.bound(chosen)
            self._keep(self._wish.workflow, bound)
        except Unbindable as error:
            key = binding.key_of(next(iter(error.problems)))
            raise BadSweep(str(error), key if key[:1] == ("inputs",) else ()) from None
        for place, value in bound.items():
            known = self._places.all[place]
            definitions = self._definitions.get(known.class_type)
            if place not in places or not definitions or value == AUTO or not isinstance(value, (str, int, float)):
                continue
            types = [type_of(value, each, known.name) for each in definitions]
            try:
                first_fit(Token(text_of(value), is_plain=True), types, place)
            except BadValue as error:
                names = [name for name in self._wish.inputs if place in _places_of(self._places, name, binding)]
                raise BadSweep(str(error), ("inputs", names[0]) if names else ()) from None


def _places_of(places: Places, name: str, binding: _Binding) -> list[str]:
    try:
        return places.find(name, binding.recipe) or places.placeholders[name]
    except NoSuchPlace:
        return []


def _lenient(wish: SweepRequest, axes: Sequence[Axis]) -> Recipe:
    """The recipe of a sweep: what the template has already, or an axis gives, need not be said."""
    recipe, places = wish.workflow.recipe, wish.workflow.places
    covered = {place for axis in axes for place in axis.places}
    needed = []
    for name in recipe.required_inputs:
        try:
            found = places.find(name, recipe) or places.placeholders[name]
        except NoSuchPlace:
            continue
        is_given = covered >= set(found) or all(_is_said(places.all[place].value) for place in found)
        if name in wish.inputs or not is_given:
            needed.append(name)
    return replace(recipe, required_inputs=tuple(needed))


def _is_said(value: Any) -> bool:
    return value is not None and value != "" and "${" not in str(value)


def _check_grid(grid: GridAxes, combinations: Combinations) -> None:
    known = [axis.name for axis in combinations.axes]
    for key, name in vars(grid).items():
        if name and name not in known:
            raise BadSweep(f"{name!r} is no axis of this sweep; there are {', '.join(known)}", ("grid", key))
    chosen = [name for name in vars(grid).values() if name]
    if len(set(chosen)) < len(chosen):
        raise BadSweep("grid: x, y and pages need different axes")
