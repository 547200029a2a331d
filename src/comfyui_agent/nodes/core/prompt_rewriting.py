"""Reading the batch out of a prompt with an iterator, and writing the prompts of its members. Runs on Python 3.9."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from comfyui_agent.domain.combinations import Axis, BadAxes, Combinations, Mode
from comfyui_agent.domain.prompts import class_of, inputs_of, leading_to, natural_key, natural_order
from comfyui_agent.domain.texts import suggest
from comfyui_agent.domain.value_types import type_of
from comfyui_agent.nodes.core.batch_state import GridOptions
from comfyui_agent.nodes.core.parameter_parser import AUTO, MOST_MEMBERS, parse
from comfyui_agent.nodes.core.workflow_metadata import show_values

ITERATOR, PARAMETER, SAVER, COMPOSITOR = "WIIterator", "WIParameter", "WISaveImage", "WIGridCompositor"
OWN = (ITERATOR, PARAMETER)
BATCH, INDEX, TOTAL, VALUES = "e3_batch", "e3_index", "e3_total", "e3_values"
"""Inputs that mark the iterator of a member. They differ for each, so that ComfyUI's cache does not answer."""
MEMBER = "e3_member"
"""The same for nodes that save without E3."""
AFTER = "e3_after_{}"
"""An input that makes a grid wait for the files of its own member."""
PARAMETER_INPUT = re.compile(r"param_[0-9]+")
LONGEST_NAME = 80
MOST_SUGGESTED = 200
MOST_PARAMETERS = 20


class BadParameter(ValueError):
    """A parameter that cannot be used. The message says why, and what to do."""


@dataclass(frozen=True)
class Target:
    """The input that a parameter drives."""

    node_id: str
    input_name: str

    def __str__(self) -> str:
        return f"{self.node_id}.{self.input_name}"


@dataclass(frozen=True)
class Plan:
    """The batch that a prompt asks for: one member for each combination."""

    iterator: str
    name: str
    combinations: Combinations
    targets: Mapping[str, Target]
    """By the name of the axis."""
    grid_options: Mapping[str, GridOptions] = field(default_factory=dict)
    waits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Grid node → nodes that save and that it does not depend on already."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Grid node → the node that saves what it shows, or itself."""
    savers: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    """In a batch without our own nodes: the last nodes, which ComfyUI's cache must not answer for."""

    @property
    def reporters(self) -> frozenset[str]:
        return frozenset([*self.savers, *self.sources.values()])

    def write(self, document: dict[str, Any], index: int, batch_id: str) -> None:
        """Change a request to that of a member: its prompt, and the workflow that goes into its files."""
        prompt = document["prompt"]
        values = self.combinations.values_at(index)
        changed: dict[tuple[str, str], tuple[Any, Any]] = {}
        for name, target in self.targets.items():
            inputs = prompt[target.node_id]["inputs"]
            changed[target.node_id, target.input_name] = (inputs.get(target.input_name), values[name])
            inputs[target.input_name] = values[name]
        marks = {BATCH: batch_id, INDEX: index, TOTAL: len(self.combinations), VALUES: values}
        prompt[self.iterator]["inputs"].update(marks)
        for grid, savers in self.waits.items():
            for number, saver in enumerate(savers, start=1):
                prompt[grid]["inputs"][AFTER.format(number)] = [saver, 0]
        for node_id in self.ends:
            prompt[node_id]["inputs"][MEMBER] = f"{batch_id}/{index}"
        if show_values(document, changed):
            show_values(document, {(self.iterator, "enabled"): (True, False)})


def plan_of(
    document: Any,
    declares: Callable[[str, str], bool],
    folder: Callable[[], Path | None],
    warn: Callable[[str], None],
) -> Plan | None:
    """The batch that a request asks for; None if it asks for none. A bad parameter is left out with a warning.
    `declares` says whether a node class has an input, `folder` where files with values are."""
    prompt = document.get("prompt") if isinstance(document, Mapping) else None
    if not isinstance(prompt, Mapping):
        return None
    # An input that is connected to another node counts as off: its value is not known here.
    enabled = [
        node_id
        for node_id in natural_order(prompt)
        if class_of(prompt, node_id) == ITERATOR
        and inputs_of(prompt, node_id).get("enabled", True) in (True, "true", "True")
    ]
    if not enabled:
        return None
    iterator, *others = enabled
    for other in others:
        warn(f"iterator {other} is left out: one iterator makes the batch of a prompt, and {iterator} comes first")
    inputs = inputs_of(prompt, iterator)
    axes, targets = _axes(prompt, iterator, declares, folder(), warn)
    if not axes:
        warn(f"iterator {iterator} has no parameter that can be used: the prompt runs once, as it is")
        return None
    try:
        combinations = Combinations(axes, Mode(inputs.get("mode", Mode.MATRIX.value)))
        if len(combinations) > MOST_MEMBERS:
            raise BadAxes(f"they make {len(combinations):,} combinations, and {MOST_MEMBERS:,} is the most")
    except ValueError as error:
        warn(f"iterator {iterator} makes no batch, the prompt runs once, as it is: {error}")
        return None
    name = inputs.get("batch_name")
    asked_for = document.get("partial_execution_targets")
    runs = asked_for if isinstance(asked_for, list) else prompt
    savers = [node_id for node_id in _connected(prompt, SAVER, iterator) if node_id in runs]
    grids = [node_id for node_id in _connected(prompt, COMPOSITOR, iterator) if node_id in runs]
    before = {grid: leading_to(prompt, [grid]) for grid in grids}
    return Plan(
        iterator,
        name[:LONGEST_NAME] if isinstance(name, str) and name.strip() else "batch",
        combinations,
        targets,
        grid_options={grid: GridOptions.of(inputs_of(prompt, grid)) for grid in grids},
        waits={grid: tuple(saver for saver in savers if saver not in before[grid]) for grid in grids},
        sources={grid: _source(prompt, grid, savers) for grid in grids},
        savers=tuple(savers),
        ends=() if savers or grids else _last_nodes(prompt),
    )


def _axes(
    prompt: Mapping[str, Any],
    iterator: str,
    declares: Callable[[str, str], bool],
    folder: Path | None,
    warn: Callable[[str], None],
) -> tuple[list[Axis], dict[str, Target]]:
    axes: list[Axis] = []
    targets: dict[str, Target] = {}
    inputs = inputs_of(prompt, iterator)
    for slot in sorted((name for name in inputs if PARAMETER_INPUT.fullmatch(name)), key=natural_key):
        if len(axes) == MOST_PARAMETERS:
            warn(f"{slot} of iterator {iterator} is left out, as is what follows: {MOST_PARAMETERS} is the most")
            break
        try:
            node_id, _ = _link(inputs[slot])
            if class_of(prompt, node_id) != PARAMETER:
                raise BadParameter("it is not connected to an E3 Parameter: connect one")
            target = _target(prompt, node_id, declares)
            for name, taken in targets.items():
                if taken == target:
                    raise BadParameter(f"{name} drives {target} already: take one of them away")
            name = _name(inputs_of(prompt, node_id).get("name"), target, targets)
            values = _values(prompt, node_id, target, folder)
        except (ValueError, OSError) as error:
            warn(f"{slot} of iterator {iterator} is left out: {error}")
            continue
        axes.append(Axis(name, (str(target),), tuple(values)))
        targets[name] = target
    return axes, targets


def _target(prompt: Mapping[str, Any], parameter: str, declares: Callable[[str, str], bool]) -> Target:
    node_id = _text(prompt, parameter, "node_id").strip().lstrip("#")
    input_name = _text(prompt, parameter, "input_name").strip()
    if not node_id or not input_name:
        raise BadParameter(f"parameter {parameter} does not say what it drives: give node_id and input_name")
    if node_id not in prompt or not isinstance(prompt[node_id], Mapping):
        known = list(islice((each for each in prompt if class_of(prompt, each) not in OWN), MOST_SUGGESTED))
        inside = [each for each in prompt if each.endswith(f":{node_id}")]
        near = f"did you mean {inside[0]}?" if len(inside) == 1 else suggest(node_id[:60], known)
        raise BadParameter(f"there is no node {node_id!r:.60} that runs; {near}")
    inputs = prompt[node_id].get("inputs")
    if not isinstance(inputs, dict):
        raise BadParameter(f"node {node_id!r:.60} has no inputs")
    class_type = class_of(prompt, node_id)
    if class_type in OWN:
        raise BadParameter(f"node {node_id} is one of E3's own: drive a node that renders")
    if input_name not in inputs and not declares(class_type, input_name):
        raise BadParameter(
            f"{class_type} (node {node_id}) has no input {input_name!r:.60}; {suggest(input_name[:60], inputs)}"
        )
    return Target(node_id, input_name)


def _values(prompt: Mapping[str, Any], parameter: str, target: Target, folder: Path | None) -> list[Any]:
    type_ = _text(prompt, parameter, "type") or AUTO
    kind = type_of(inputs_of(prompt, target.node_id).get(target.input_name), None, target.input_name).kind
    values = _value(prompt, parameter, "values")
    if folder is None and isinstance(values, str) and values.lstrip().startswith("@"):
        raise BadParameter("this ComfyUI does not tell where its input folder is: type the values in")
    return parse(values, type_, folder, kind)


def _text(prompt: Mapping[str, Any], node_id: str, name: str) -> str:
    value = _value(prompt, node_id, name)
    return "" if value is None else str(value)


def _value(prompt: Mapping[str, Any], node_id: str, name: str) -> Any:
    """The value of an input. A connected one has the `value` of the primitive node there."""
    value = inputs_of(prompt, node_id).get(name)
    if not isinstance(value, list):
        return value
    source, _ = _link(value)
    there = inputs_of(prompt, source).get("value") if class_of(prompt, source).startswith("Primitive") else None
    if not isinstance(there, (str, int, float)):
        raise BadParameter(f"{name} of parameter {node_id} comes from a node whose value is not known yet: type it in")
    return there


def _name(given: Any, target: Target, taken: Mapping[str, Target]) -> str:
    """The name of a parameter, or of its input. A name that is taken gets the place added."""
    name = (" ".join(given.split())[:LONGEST_NAME] if isinstance(given, str) else "") or target.input_name
    return f"{name} ({target})" if name in taken else name


def _connected(prompt: Mapping[str, Any], class_type: str, iterator: str) -> list[str]:

    def is_connected(node_id: str) -> bool:
        source = _link(inputs_of(prompt, node_id).get("iterator"))[0]
        return source == iterator or iterator in leading_to(prompt, [source])

    return [each for each in natural_order(prompt) if class_of(prompt, each) == class_type and is_connected(each)]


def _source(prompt: Mapping[str, Any], grid: str, savers: list[str]) -> str:
    """The node that saves the pictures of a grid; the grid itself if none does."""
    shown = _link(inputs_of(prompt, grid).get("images"))
    for saver in savers:
        if shown in ((saver, 0), _link(inputs_of(prompt, saver).get("images"))):
            return saver
    return grid


def _link(value: Any) -> tuple[str, Any]:
    return (str(value[0]), value[1]) if isinstance(value, list) and len(value) == 2 else ("", None)


def _last_nodes(prompt: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes whose outputs are not used, except E3's own."""
    used = {_link(value)[0] for node_id in prompt for value in inputs_of(prompt, node_id).values()}
    last = [node_id for node_id in prompt if node_id not in used and class_of(prompt, node_id) not in ("", *OWN)]
    return tuple(node_id for node_id in last if isinstance(prompt[node_id].get("inputs"), dict))
