"""A sweep: one workflow, rendered for every combination of some values. Nothing is queued here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.batches import BatchKind, NewBatch, mint_batch_id, slug
from comfyui_agent.domain.binding import TOKEN, Unbindable, bind
from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.jobs import DEFAULT_PRIORITY, NewJob
from comfyui_agent.domain.kinds import folder_of, job_type_of
from comfyui_agent.domain.placing import NoSuchPlace
from comfyui_agent.domain.recipes import Recipe
from comfyui_agent.domain.value_types import BadValue, Kind, ValueType, converted, type_of
from comfyui_agent.domain.values import BadValues, Token, parse

LONGEST_FILE_NAME = 80
MOST_CELLS = 10_000
"""A grid of more than these shows nothing."""
AUTO = "auto"

Definitions = Mapping[str, Sequence[Mapping[str, Any]]]
"""Node classes, and what each server that was asked says about them."""
Keep = Callable[[Workflow, Mapping[str, Any]], dict[str, str]]
"""Keeps the local pictures that values name, by place; Unbindable if one cannot be used."""


class BadSweep(Exception):
    """A sweep that cannot be: what is wrong, and what to write instead."""


@dataclass(frozen=True)
class GridWish:
    """Which axis goes where in the grid; empty where people did not say."""

    x: str = ""
    y: str = ""
    pages: str = ""


@dataclass(frozen=True)
class SweepWish:
    """What people ask for. `sets` maps `3.seed,11.seed` to its values, as a text or as a list."""

    workflow: Workflow
    sets: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = Mode.MATRIX
    name: str = ""
    job_type: str = ""
    priority: int = DEFAULT_PRIORITY
    grid: GridWish = field(default_factory=GridWish)
    skip_bad: bool = False


@dataclass(frozen=True)
class Sweep:
    """A sweep that was checked: its batch, and a job for every combination, made one at a time."""

    batch: NewBatch
    combinations: Combinations
    workflow: Workflow
    warnings: tuple[str, ...]
    _recipe: Recipe
    _inputs: Mapping[str, Any]
    _names: Mapping[str, tuple[str, ...]]
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
            bound = _bound(self.workflow, self._recipe, self._inputs, self._names, values)
            number = f"{index + 1:0{digits}d}"
            yield NewJob(
                config_name=f"{self.batch.id}_{number}",
                job_type=self._job_type,
                workflow_id=self._recipe.workflow_id,
                template=self.workflow.template,
                inputs=bound,
                priority=self._priority,
                file_path=f"{self._folder}/{_file_name(number, values, self.varying)}.png",
                metadata={"combination": values},
                batch_id=self.batch.id,
                batch_index=index,
                pictures=self._keep(self.workflow, bound),
            )

    @property
    def varying(self) -> list[str]:
        """Axes with more than one value: those that tell the results apart."""
        return [axis.name for axis in self.combinations.axes if len(axis.values) > 1]


def define(
    wish: SweepWish,
    finished: str,
    definitions: Definitions,
    *,
    read_lines: Callable[[str], Sequence[str]],
    draw: Callable[[int], Sequence[int]],
    keep: Keep = lambda *_: {},
) -> Sweep:
    """Check all that can be known before anything is queued; BadSweep says what is wrong.

    `finished` is the folder of results, relative to the workspace.
    """
    warnings: list[str] = []
    axes: list[Axis] = []
    names: dict[str, tuple[str, ...]] = {}
    for name, said in wish.sets.items():
        try:
            axis, own, problems = _axis(wish, name, said, definitions, read_lines, draw)
        except BadSweep as error:
            if not wish.skip_bad:
                raise
            warnings.append(f"{error}; left out")
            continue
        warnings += [f"{problem}; left out" for problem in problems]
        axes.append(axis)
        names[axis.name] = own
    try:
        combinations = Combinations(axes, wish.mode)
    except BadAxes as error:
        raise BadSweep(str(error)) from None
    _check_grid(wish.grid, combinations)
    recipe = _lenient(wish.workflow, wish.inputs, axes)
    try:
        first = _bound(wish.workflow, recipe, wish.inputs, names, combinations.values_at(0))
        keep(wish.workflow, first)
    except Unbindable as error:
        raise BadSweep(str(error)) from None
    name = wish.name or recipe.workflow_id
    batch_id = mint_batch_id(name, "sweep")
    try:
        job_type = wish.job_type.upper() or job_type_of(wish.workflow.graph)
        folder = f"{finished.rstrip('/')}/{folder_of(job_type)}/{batch_id}"
    except ValueError as error:
        raise BadSweep(str(error)) from None
    metadata = {
        "workflow": recipe.workflow_id,
        "template": wish.workflow.template.hash,
        "mode": wish.mode.value,
        "axes": [{"name": axis.name, "places": axis.places, "values": axis.values} for axis in axes],
        "inputs": dict(wish.inputs),
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
        recipe,
        dict(wish.inputs),
        names,
        folder,
        job_type,
        wish.priority,
        keep,
    )


def _axis(
    wish: SweepWish,
    name: str,
    said: Any,
    definitions: Definitions,
    read_lines: Callable[[str], Sequence[str]],
    draw: Callable[[int], Sequence[int]],
) -> tuple[Axis, tuple[str, ...], list[str]]:
    """An axis, the names that it stands for, and values of it that were left out."""
    own = tuple(part.strip() for part in name.split(",") if part.strip())
    if not own:
        raise BadSweep(f"{name!r} names no input: write NODE.input=VALUES, such as 3.seed=1..4")
    places: list[str] = []
    types: dict[str, list[ValueType]] = {}
    for each in own:
        try:
            found = wish.workflow.places.find(each, wish.workflow.recipe)
        except NoSuchPlace as error:
            raise BadSweep(f"--set {name}: {error}") from None
        places += found or [f"${{{each}}}"]  # several placeholders may share a text
        for place in found or wish.workflow.places.placeholders[each]:
            types[place] = _types(wish.workflow, place, definitions)
    try:
        tokens = _tokens(said, read_lines, draw)
    except BadValues as error:
        raise BadSweep(f"--set {name}: {error}") from None
    values, problems = [], []
    for token in tokens:
        try:
            values.append(_converted(token, types, wish.workflow))
        except BadValue as error:
            words = f"--set {name}: {str(error).removeprefix(f'{name}: ')}"
            if not wish.skip_bad:
                raise BadSweep(words) from None
            problems.append(words)
    if not values:
        raise BadSweep(f"--set {name}: no value is left")
    return Axis(",".join(own), tuple(places), tuple(values)), own, problems


def _tokens(said: Any, read_lines: Callable[[str], Sequence[str]], draw: Callable[[int], Sequence[int]]) -> list[Token]:
    """A text in the language of values, or a list of plain ones from a file."""
    if isinstance(said, str):
        return parse(said, read_lines=read_lines, draw=draw)
    listed = said if isinstance(said, list) else [said]
    if not listed:
        raise BadValues("there are no values: write at least one")
    tokens = []
    for value in listed:
        if not isinstance(value, (str, int, float, bool)):
            raise BadValues(f"{value!r:.60} is no value: write texts, numbers, true or false")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        tokens.append(Token(text, isinstance(value, str)))
    return tokens


def _types(workflow: Workflow, place: str, definitions: Definitions) -> list[ValueType]:
    """What may stand at a place: as the servers say, or as the template has it if none was asked."""
    found = workflow.places.all[place]
    known = definitions.get(found.class_type) or (None,)
    if isinstance(found.value, str) and TOKEN.search(found.value) and not TOKEN.fullmatch(found.value):
        return [ValueType(Kind.ANY)]  # it becomes a part of a text
    return [type_of(found.value, definition, found.name) for definition in known]


def _converted(token: Token, types: Mapping[str, Sequence[ValueType]], workflow: Workflow) -> Any:
    """A value that fits every place of its axis; at each, one server that takes it is enough."""
    result: Any = token.text
    for number, (place, known) in enumerate(types.items()):
        if token.text == AUTO and workflow.places.all[place].value == AUTO:
            continue
        value = _first_fit(token, known, place)
        result = value if number == 0 else result
    return result


def _first_fit(token: Token, known: Sequence[ValueType], place: str) -> Any:
    trouble: BadValue | None = None
    for each in known:
        try:
            return converted(token, each, place)
        except BadValue as error:
            trouble = trouble or error
    assert trouble is not None
    raise trouble


def _lenient(workflow: Workflow, inputs: Mapping[str, Any], axes: Sequence[Axis]) -> Recipe:
    """The recipe of a sweep: what the template has already, or an axis gives, need not be said."""
    covered = {place for axis in axes for place in axis.places}
    needed = []
    for name in workflow.recipe.required_inputs:
        try:
            places = workflow.places.find(name, workflow.recipe) or workflow.places.placeholders[name]
        except NoSuchPlace:
            continue
        values = [workflow.places.all[place].value for place in places]
        if name in inputs or not (covered >= set(places) or all(_is_said(value) for value in values)):
            needed.append(name)
    return replace(workflow.recipe, required_inputs=tuple(needed))


def _is_said(value: Any) -> bool:
    return value is not None and value != "" and "${" not in str(value)


def _bound(
    workflow: Workflow,
    recipe: Recipe,
    inputs: Mapping[str, Any],
    names: Mapping[str, tuple[str, ...]],
    values: Mapping[str, Any],
) -> dict[str, Any]:
    given = dict(inputs)
    for axis, value in values.items():
        given |= dict.fromkeys(names[axis], value)
    return bind(workflow.places, recipe, given)


def _check_grid(grid: GridWish, combinations: Combinations) -> None:
    known = [axis.name for axis in combinations.axes]
    for key, name in vars(grid).items():
        if name and name not in known:
            raise BadSweep(f"grid.{key}: {name!r} is no axis of this sweep; there are {', '.join(known)}")
    chosen = [name for name in vars(grid).values() if name]
    if len(set(chosen)) < len(chosen):
        raise BadSweep("grid: x, y and pages need different axes")


def _file_name(number: str, values: Mapping[str, Any], varying: Sequence[str]) -> str:
    """The number, and what is different about it."""
    words = [f"{slug(name.rpartition('.')[2], 20)}-{slug(str(values[name]), 24)}" for name in varying]
    return "_".join([number, *words])[:LONGEST_FILE_NAME].rstrip("._-")
