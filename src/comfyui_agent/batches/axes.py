"""The axes of a sweep, counted before their values are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.batches.sweep_request import SweepRequest
from comfyui_agent.config.workflows import Workflow
from comfyui_agent.domain.combinations import MOST, BadAxes, check_apart, count
from comfyui_agent.domain.prompts import NoSuchPlace
from comfyui_agent.domain.value_types import text_of
from comfyui_agent.domain.values import BadValues, ReadLines, Token, Values, read, shortened

LONGEST_NAME = 1_000


class BadSweep(Exception):
    """A sweep that cannot be made: what is wrong, and what to write instead. `key` is the key in a sweep file."""

    def __init__(self, message: str, key: tuple[str, ...] = ()) -> None:
        flag = {"set": "--set {}: ", "grid": "grid.{}: "}.get(key[0], "") if len(key) > 1 else ""
        super().__init__(flag.format(key[-1]) + message if key else message)
        self.key = key
        self.message = message


class TooLarge(BadSweep):
    """A sweep with more values or combinations than it may have."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a sweep. `values` counts each value once for every name of its axis."""

    axes: int = 20
    combinations: int = MOST
    values: int = 2 * MOST


@dataclass(frozen=True)
class CountedAxis:
    """An axis: its names with their places, and values that are not made yet."""

    key: tuple[str, ...]
    places: Mapping[str, Sequence[str]]
    values: Values

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.places)

    @property
    def name(self) -> str:
        return ",".join(self.places)

    @property
    def addressed(self) -> tuple[str, ...]:
        """All places of the axis. Placeholders count by name, because several may share a text."""
        return tuple(where for each, found in self.places.items() for where in found or [f"${{{each}}}"])


@dataclass(frozen=True)
class CountedAxes:
    """The axes of a sweep within the limits, and a warning for each that was left out."""

    axes: Sequence[CountedAxis]
    warnings: Sequence[str]


def count_axes(request: SweepRequest, read_lines: ReadLines, bounds: Bounds | None = None) -> CountedAxes:
    """Count the values of a sweep without making them. BadSweep if it is wrong, TooLarge if it is too large."""
    bounds = bounds or Bounds()
    if len(request.sets) > bounds.axes:
        raise BadSweep(f"the sweep has {len(request.sets):,} axes, and {bounds.axes} is the most: leave some out")
    axes: list[CountedAxis] = []
    warnings: list[str] = []
    for name, values in request.sets.items():
        try:
            axes.append(_counted(name, values, request.workflow, read_lines, bounds))
        except BadSweep as error:
            if not request.skip_bad:
                raise
            warnings.append(f"{error}; left out")
    if not axes:
        return CountedAxes([], warnings)
    try:
        check_apart((axis.name, axis.addressed) for axis in axes)
    except BadAxes as error:
        raise BadSweep(str(error)) from None
    try:
        count([(axis.name, len(axis.values)) for axis in axes], request.mode, bounds.combinations)
    except BadAxes as error:
        raise TooLarge(str(error)) from None
    total = sum(len(axis.values) * len(axis.names) for axis in axes)
    if total > bounds.values:
        raise TooLarge(f"the axes have {total:,} values together, and {bounds.values:,} is the most: give fewer")
    return CountedAxes(axes, warnings)


def _counted(name: str, values: Any, workflow: Workflow, read_lines: ReadLines, bounds: Bounds) -> CountedAxis:
    if len(name) > LONGEST_NAME:
        raise BadSweep(f"{shortened(name)} has more than {LONGEST_NAME:,} letters: name fewer inputs", ("set",))
    key = ("set", name)
    names = [part.strip() for part in name.split(",") if part.strip()]
    if not names:
        raise BadSweep(f"{name!r} names no input: write NODE.input=VALUES, such as 3.seed=1..4", key)
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise BadSweep(f"{twice} stands there twice: write it once", key)
    try:
        places = {each: workflow.places.find(each, workflow.recipe) for each in names}
        return CountedAxis(key, places, _values(values, read_lines, bounds.combinations))
    except (NoSuchPlace, BadValues) as error:
        raise BadSweep(str(error), key) from None


def _values(given: Any, read_lines: ReadLines, most: int) -> Values:
    """The values of a text in the grammar of values, or of a list from a file."""
    if isinstance(given, str):
        return read(given, read_lines=read_lines, most=most)
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise BadValues("there are no values: write at least one")
    if len(listed) > most:
        raise BadValues(f"the list has {len(listed):,} values, and {most:,} is the most: make it shorter")
    tokens = []
    for value in listed:
        if not isinstance(value, (str, int, float, bool)):
            raise BadValues(f"{value!r:.60} is no value: write texts, numbers, true or false")
        tokens.append(Token(text_of(value), isinstance(value, str)))
    return Values(tokens)
