"""The values of a sweep's axes: read, checked against what their places take, and bound for each combination."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.batches.axes import BadSweep, CountedAxis
from comfyui_agent.batches.members import Shared
from comfyui_agent.batches.sweep_request import Definitions, Keep, SweepRequest
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.binding import TOKEN, Places, Recipe, Unbindable
from comfyui_agent.domain.combinations import Axis, Combinations, Mode
from comfyui_agent.domain.drawing import Drawn, is_open
from comfyui_agent.domain.needs import AUTO
from comfyui_agent.domain.texts import bytes_of
from comfyui_agent.domain.value_types import BadValue, first_fit, text_of, type_of
from comfyui_agent.domain.values import DrawSeeds, Token

MOST_NAMED = 3
MOST_WARNINGS = 100


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
    seed: int
    """What the combinations leave open is drawn by it, for each anew."""

    def bound(self, chosen: Sequence[int]) -> dict[str, Any]:
        """Values by place for a combination, given by the index of the value of each axis."""
        return self._drawn(chosen)[0]

    def _drawn(self, chosen: Sequence[int]) -> tuple[dict[str, Any], Drawn]:
        given = dict(self.inputs)
        for index, column in zip(chosen, self.columns, strict=True):
            given |= {name: values[index] for name, values in column.values.items()}
        seed = f"{self.seed}/{'/'.join(map(str, chosen))}"
        return self.workflow.bound(given, seed=seed, recipe=self.recipe)

    def drawn(self) -> list[str]:
        """The inputs of which something is drawn."""
        return list(self._drawn([0] * len(self.columns))[1].written)

    def places_of(self, name: str) -> list[str]:
        return self.workflow.places.reached(name, self.recipe)

    def unvarying(self) -> dict[str, Any]:
        """The values by place that are the same in every combination."""
        names = [name for column in self.columns if len(column.axis.values) > 1 for name in column.values]
        varying = {where for name in (*names, *self.drawn()) for where in self.places_of(name)}
        bound = self.bound([0] * len(self.columns))
        return {where: value for where, value in bound.items() if where not in varying}


class LargestMember:
    def __init__(self, binding: SweepBinding, combinations: Combinations) -> None:
        sizes: list[list[int]] = []
        for column in binding.columns:  # each value is stored at all its places, and in the metadata
            times = 1 + sum(len(binding.places_of(name)) for name in column.values)
            sizes.append([times * bytes_of(value) for value in column.axis.values])
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
        return bytes_of(shared.own(self.bound)) + bytes_of(self.metadata) - int(self._excess)


@dataclass(frozen=True)
class ValueReader:
    """Reads and checks values. It calls `check_cancelled` again and again, which may raise to end the work."""

    request: SweepRequest
    definitions: Definitions
    draw: DrawSeeds
    keep: Keep
    check_cancelled: Callable[[], None]

    @property
    def _places(self) -> Places:
        return self.request.workflow.places

    def columns(self, axes: Sequence[CountedAxis], warnings: list[str]) -> list[Column]:
        """Every axis with its values. Adds a warning for each value or axis that was left out."""
        columns: list[Column] = []
        for axis in axes:
            try:
                columns.append(self._column(axis, warnings))
            except BadSweep as error:
                if not self.request.skip_bad:
                    raise
                warnings.append(f"{error}; left out")
        return columns

    def _column(self, axis: CountedAxis, warnings: list[str]) -> Column:
        values: dict[str, list[Any]] = {name: [] for name in axis.names}
        problems: list[str] = []
        for token in axis.values.tokens(self.draw):
            self.check_cancelled()
            try:
                row = [self._fit(token, name, axis.places[name]) for name in axis.names]
            except (BadValue, Unbindable) as error:
                problems.append(str(error).removeprefix(f"{axis.key[-1]}: "))
                if not self.request.skip_bad:
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
        return Column(Axis(axis.name, axis.addressed, found[axis.names[0]]), found)

    def _fit(self, token: Token, name: str, places: Sequence[str]) -> Any:
        """A value that fits all places of a name. If it names a file, the file exists."""
        found = [self._convert(token, place) for place in places or self._places.placeholders[name]]
        for place in places:
            self.keep(self.request.workflow, {place: found[0]})
        return found[0]

    def _convert(self, token: Token, place: str) -> Any:
        """A value in the type of a place. One server that takes it is enough."""
        known = self._places.all[place]
        if token.text == AUTO and known.value == AUTO:
            return AUTO
        if isinstance(known.value, str) and TOKEN.search(known.value) and not TOKEN.fullmatch(known.value):
            return token.text  # it becomes a part of a text
        definitions = self.definitions.get(known.class_type) or (None,)
        return first_fit(token, [type_of(known.value, each, known.name) for each in definitions], place)

    def check(self, binding: SweepBinding) -> None:
        """Check the first combination, and every value that becomes a part of a text or is drawn."""
        first = [0] * len(binding.columns)
        self._check_one(binding, first, self._places.all)
        for number, column in enumerate(binding.columns):
            in_texts = {
                place
                for name in column.values
                for place in self._places.placeholders.get(name, ())
                if not TOKEN.fullmatch(str(self._places.all[place].value))
            }
            for index in range(len(column.axis.values)):
                self.check_cancelled()
                if in_texts or any(is_open(values[index]) for values in column.values.values()):
                    self._check_one(binding, [*first[:number], index, *first[number + 1 :]], in_texts)

    def _check_one(self, binding: SweepBinding, chosen: Sequence[int], places: Collection[str]) -> None:
        try:
            bound = binding.bound(chosen)
            self.keep(self.request.workflow, bound)
        except Unbindable as error:
            name = next(iter(error.problems))
            raise BadSweep(str(error), ("inputs", name) if name in self.request.inputs else ()) from None
        for place, value in bound.items():
            known = self._places.all[place]
            definitions = self.definitions.get(known.class_type)
            if place not in places or not definitions or value == AUTO or not isinstance(value, (str, int, float)):
                continue
            types = [type_of(value, each, known.name) for each in definitions]
            try:
                first_fit(Token(text_of(value), is_plain=True), types, place)
            except BadValue as error:
                names = [name for name in self.request.inputs if place in binding.places_of(name)]
                raise BadSweep(str(error), ("inputs", names[0]) if names else ()) from None
