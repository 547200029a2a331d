"""The fields of a node as the page builds them: which there are, in which order, and their values in a file."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from comfyui_agent.workflows.editor_graph import EditorNode, Slot
from comfyui_agent.workflows.errors import NotConvertible
from comfyui_agent.workflows.input_specs import AUTOGROW, DYNAMIC_COMBO, MATCH_TYPE, InputSpec, NodeClass, companions

CUSTOM_COMBO = "CustomCombo"
ORDINAL = re.compile(r"[0-9]{1,4}$")
MOST_FIELDS = 5_000
NOT_STORED = "IMAGECOMPARE"
"""The type of fields without a place in `widgets_values`."""


class _Absent:
    """The value of a field that has none. It is not sent."""


ABSENT = _Absent()


@dataclass(eq=False)
class Field:
    """One field of a node. `is_sent`: it is part of the prompt."""

    spec: InputSpec
    value: Any = ABSENT
    is_sent: bool = True
    is_dynamic_prompt: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


def added_field(name: str, value: Any = ABSENT, *, is_sent: bool = False) -> Field:
    """A field that the page adds and no server declares."""
    return Field(InputSpec(name), value, is_sent)


class NodeFields:
    """The fields of one node, with the values of its file."""

    def __init__(self, kind: NodeClass, node: EditorNode) -> None:
        self._kind, self._node = kind, node
        self.all: list[Field] = []
        for spec in kind.inputs:
            self.all += self._new(spec)
        for field in self.all:
            field.is_dynamic_prompt = field.spec.options.get("dynamicPrompts") is True
        if kind.takes_upload:
            self.all.append(added_field("upload"))
        for spec in kind.inputs:
            if spec.type == AUTOGROW:
                self.all += self._grown(spec, self._linked_ordinals(spec))
        if kind.name == CUSTOM_COMBO:
            self._add_options()
        self._fill()

    def named(self, name: str) -> Field | None:
        return next((field for field in self.all if field.name == name), None)

    def set(self, field: Field, value: Any) -> None:
        """Give a field its value. A dynamic combo exchanges the fields below it."""
        field.value = field.spec.choices[0] if value is None and field.spec.choices else value
        if field.spec.type != DYNAMIC_COMBO:
            return
        self.all = [each for each in self.all if not each.name.startswith(f"{field.name}.")]
        at = self.all.index(field) + 1
        self.all[at:at] = self._below(field)
        if len(self.all) > MOST_FIELDS:
            raise NotConvertible(self._node.id, self._node.title, f"it has more than {MOST_FIELDS:,} fields")

    def slots(self) -> list[Slot]:
        """The inputs that the node has with these values, in the page's order, with the links of the file."""
        given = {slot.name: slot for slot in self._node.inputs}
        found = {slot.name: slot for spec in self._kind.inputs for slot in self._slots_of(spec, given)}
        combos = tuple(f"{spec.name}." for spec in self._kind.inputs if spec.type == DYNAMIC_COMBO)
        others = (slot for name, slot in given.items() if name not in found and not name.startswith(combos))
        return [*found.values(), *others]

    def _slots_of(self, spec: InputSpec, given: dict[str, Slot]) -> Iterable[Slot]:
        if spec.type == AUTOGROW:
            yield from (slot for name, slot in given.items() if name.startswith(f"{spec.name}."))
            return
        old = given.get(spec.name)
        if spec.has_socket:
            kind = old.type if old is not None and spec.type in (MATCH_TYPE, "*") else spec.type
            widget = spec.name if spec.has_field else None
            yield Slot(spec.name, kind, old.link if old is not None else None, widget=widget)
        field = self.named(spec.name) if spec.type == DYNAMIC_COMBO else None
        for below in _branch(spec, field.value) if field is not None else ():
            yield from self._slots_of(below, given)

    def _new(self, spec: InputSpec) -> list[Field]:
        """The fields that a new node has for one input."""
        if spec.type == AUTOGROW:
            return self._grown(spec, range(spec.least + 1))
        if not spec.has_field:
            return []
        if spec.type == DYNAMIC_COMBO:
            field = Field(spec, next(iter(spec.branches()), ABSENT))
            return [field, *self._below(field)]
        value = ABSENT if spec.default is None else copy.deepcopy(spec.default)
        return [Field(spec, value), *map(added_field, companions(spec))]

    def _below(self, field: Field) -> list[Field]:
        return [each for spec in _branch(field.spec, field.value) for each in self._new(spec)]

    def _grown(self, spec: InputSpec, ordinals: Iterable[int]) -> list[Field]:
        known = {field.name for field in self.all}
        inner = [each for ordinal in ordinals for each in spec.grown(ordinal) if each.name not in known]
        return [field for each in inner for field in self._new(each)]

    def _linked_ordinals(self, spec: InputSpec) -> list[int]:
        """The places after those that are connected: there the page offers one more."""
        linked = {slot.name for slot in self._node.inputs if slot.link is not None}
        names = [name for name in linked if name.startswith(f"{spec.name}.")]
        ends = [int(match[0]) for name in names if (match := ORDINAL.search(name))]
        return [end + 1 for end in sorted(ends)]

    def _add_options(self) -> None:
        """`CustomCombo` has as many options as its user wrote, and the place of the chosen one among them."""
        values = self._node.widgets_values
        count = max(1, len(values) - 2) if isinstance(values, list) else 1
        self.all.append(added_field("index", -1, is_sent=True))
        self.all += [added_field(f"option{number}", "") for number in range(1, min(count, MOST_FIELDS) + 1)]

    def _fill(self) -> None:
        values = self._node.widgets_values
        if isinstance(values, dict):
            for name, value in values.items():
                if (field := self.named(name)) is not None:
                    self.set(field, value)
        elif values:
            self._fill_in_order(_without_forced(values, self._kind, {field.name for field in self.all}))
        if self._kind.name == CUSTOM_COMBO:
            choice, index, *options = self.all
            index.value = next((at for at, each in enumerate(options) if each.value == choice.value), -1)

    def _fill_in_order(self, values: Sequence[Any]) -> None:
        at = used = 0
        while at < len(self.all) and used < len(values):
            field = self.all[at]
            if field.spec.field_type != NOT_STORED:
                self.set(field, values[used])
                used += 1
            at += 1


def _branch(spec: InputSpec, value: Any) -> list[InputSpec]:
    return spec.branches().get(value, []) if isinstance(value, str) else []


def _without_forced(values: list[Any], kind: NodeClass, names: set[str]) -> list[Any]:
    """Files of older pages hold a value for inputs that are connections only. It is left out if the count says so."""
    flags = []
    for spec in kind.declared:
        if spec.name in names or spec.is_forced:
            flags += [spec.is_forced, False] if spec.options.get("control_after_generate") else [spec.is_forced]
    if kind.takes_upload:
        flags.append(False)
    return values if len(flags) != len(values) else [value for value, off in zip(values, flags, strict=True) if not off]
