"""The types of values that places take, and conversion of written values to them. Runs on Python 3.9."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from comfyui_agent.domain.texts import TextEnum, suggest
from comfyui_agent.domain.values import MOST_DIGITS, Token, shortened

NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
WHOLE = re.compile(r"([-+]?[0-9]+)(?:\.0*)?")
PLAINLY_A_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
"""A number that is written back unchanged: `7` or `0.5`, not `007`, `+7` or `1e5`."""
PLACEHOLDER = re.compile(r"\$\{[A-Za-z_][\w.:-]*\}")
UPLOAD = "upload"
TRUE, FALSE = frozenset({"true", "yes", "on"}), frozenset({"false", "no", "off"})
LONGEST_CHOICE = 120


class BadValue(ValueError):
    """A value that its place does not take. The message is one line: where, why, and what fits."""


class Kind(TextEnum):
    INT = "INT"
    FLOAT = "FLOAT"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    COMBO = "COMBO"
    NUMBER = "NUMBER"
    """The template has a whole number there, and no server says whether it must be one."""
    ANY = "ANY"


@dataclass(frozen=True)
class ValueType:
    """What a place takes: `choices` for COMBO, `least` and `most` for INT and FLOAT. `node` defined it."""

    kind: Kind
    choices: tuple[Any, ...] = ()
    least: float | None = None
    most: float | None = None
    node: str = ""

    @cached_property
    def by_text(self) -> Mapping[str, Any]:
        """The choices by their written form. Of two with the same form, the first counts."""
        return {written: choice for choice in reversed(self.choices) for written in (str(choice), text_of(choice))}


def type_of(value: Any, definition: Mapping[str, Any] | None, input_name: str) -> ValueType:
    """The type of an input by the node's `definition` from `/object_info`, else by the template's value.

    An input for uploads is a STRING: it may name files that the server does not have yet.
    """
    declared, options = declaration_of(definition, input_name)
    name = definition.get("name") if isinstance(definition, Mapping) else None
    node = _listable(name) if isinstance(name, str) else ""
    if isinstance(declared, str) and declared in ("INT", "FLOAT"):
        return ValueType(Kind(declared), (), _bound(options.get("min")), _bound(options.get("max")), node)
    if isinstance(declared, str) and declared in ("STRING", "BOOLEAN"):
        return ValueType(Kind(declared), node=node)
    offered = options.get("options") if declared == "COMBO" else declared
    if isinstance(offered, (list, tuple)):
        if any(isinstance(key, str) and key.endswith(UPLOAD) and options[key] for key in options):
            return ValueType(Kind.STRING, node=node)
        choices = tuple(each for each in offered if isinstance(each, (str, bool)) or _bound(each) is not None)
        if choices or not offered:
            return ValueType(Kind.COMBO, choices, node=node)
    return ValueType(_kind_of(value))


def converted(token: Token, type_: ValueType, where: str) -> Any:
    """A token as a value of a type. BadValue if it does not fit."""
    if type_.kind is Kind.STRING:
        return token.text
    if type_.kind is Kind.ANY:
        return _guessed(token)
    if type_.kind is Kind.COMBO:
        return _chosen(token.text, type_, where)
    if type_.kind is Kind.BOOLEAN:
        word = token.text.strip().lower()
        if word not in TRUE | FALSE:
            raise BadValue(f"{where}: {shortened(token.text)} is neither true nor false")
        return word in TRUE
    return _within(_number(token.text.strip(), type_.kind, where), type_, where)


def first_fit(token: Token, types: Sequence[ValueType], where: str) -> Any:
    """The value by the first type that it fits. If it fits none, the BadValue of the first type."""
    first_error: BadValue | None = None
    for each in types:
        try:
            return converted(token, each, where)
        except BadValue as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def text_of(value: Any) -> str:
    """A value as people write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def declaration_of(definition: Any, input_name: str) -> tuple[Any, Mapping[Any, Any]]:
    """The declared type and options of an input, or None and no options."""
    inputs = definition.get("input") if isinstance(definition, Mapping) else None
    for section in ("required", "optional"):
        described = inputs.get(section) if isinstance(inputs, Mapping) else None
        said = described.get(input_name) if isinstance(described, Mapping) else None
        if isinstance(said, (list, tuple)) and said:
            options = said[1] if len(said) > 1 else None
            return said[0], options if isinstance(options, Mapping) else {}
    return None, {}


def _kind_of(value: Any) -> Kind:
    """The kind by the template's value. A text that is one placeholder may become any type."""
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.NUMBER
    if isinstance(value, float):
        return Kind.FLOAT
    return Kind.STRING if isinstance(value, str) and not PLACEHOLDER.fullmatch(value) else Kind.ANY


def _bound(value: Any) -> float | None:
    """A bound, or None if it is no number or beyond all numbers of MOST_DIGITS."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and abs(value) < 10**MOST_DIGITS else None


def _chosen(text: str, type_: ValueType, where: str) -> Any:
    for written in (text, text.strip()):
        if written in type_.by_text:
            return type_.by_text[written]
    near = suggest(text[:LONGEST_CHOICE], [_listable(text_of(choice)) for choice in type_.choices])
    raise BadValue(f"{where}: {shortened(text)} is not one of the server's choices; {near}")


def _number(text: str, kind: Kind, where: str) -> float:
    """A number of a kind. Whole numbers stay whole if they are written so."""
    name = "a whole number" if kind is Kind.INT else "a number"
    if not NUMBER.fullmatch(text):
        raise BadValue(f"{where}: {shortened(text)} is not {name}")
    if sum(map(str.isdigit, text)) > MOST_DIGITS:
        raise BadValue(f"{where}: {shortened(text)} has more than {MOST_DIGITS} digits: write a shorter number")
    whole = WHOLE.fullmatch(text)
    if whole and (kind is not Kind.FLOAT or "." not in text):
        return int(whole[1])
    if kind is Kind.INT:
        raise BadValue(f"{where}: {text} is not a whole number")
    number = float(text)
    if math.isinf(number):
        raise BadValue(f"{where}: {text} is larger than numbers get: write a smaller one")
    return number


def _within(number: float, type_: ValueType, where: str) -> float:
    node = type_.node or "the node"
    if type_.least is not None and number < type_.least:
        raise BadValue(f"{where}: {number} is below {type_.least}, the least that {node} takes")
    if type_.most is not None and number > type_.most:
        raise BadValue(f"{where}: {number} is above {type_.most}, the most that {node} takes")
    return number


def _guessed(token: Token) -> Any:
    text = token.text
    if token.is_plain:
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if PLAINLY_A_NUMBER.fullmatch(text) and len(text) <= MOST_DIGITS:
        return float(text) if "." in text else int(text)
    return text


def _listable(text: str) -> str:
    """A server's text for a sentence: short and printable."""
    text = text if len(text) <= LONGEST_CHOICE else text[: LONGEST_CHOICE - 1] + "…"
    return text if text.isprintable() else repr(text)[1:-1]
