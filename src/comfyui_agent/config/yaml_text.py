"""YAML with the line of every key, safe for files from strangers: bounded in depth and size, without recursion.

Unlike in YAML 1.1, `yes`, `12:30` and `2025-08-09` are texts and `1e5` is a number.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

DEEPEST = 40
MOST_VALUES = 100_000
WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F]+")
FRACTION = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)  # type: ignore[arg-type]
LONGEST_NUMBER = 400
STANDARD = "tag:yaml.org,2002:"
MERGE = "<<"
LETTERS_PER_VALUE = 100
"""A long text counts as several values, because aliases can repeat it."""
NOT_JOINED = "invalid Unicode character escape code"
KEY_AND_TEXT = re.compile(r"\s*(?:- )?([\w.-]{1,40}):\s+([^'\"\[{&*!|>%@`#\s].*\S)\s*")
SECRET = re.compile("://|@|password|secret|token|key", re.IGNORECASE)
LONGEST_EXAMPLE = 120
HALVES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


class NotYaml(Exception):
    """A text that is not YAML: what is wrong, and in which line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass
class Parsed:
    value: Any
    _lines: dict[tuple[int, Any], int] = field(default_factory=dict, repr=False)
    _held: list[Any] = field(default_factory=list, repr=False)
    """Keeps merged mappings alive, because lines are known by `id()`."""

    def line_of(self, path: tuple[Any, ...]) -> int | None:
        """The line of a key, or of the innermost key of the path that exists."""
        line, here = None, self.value
        for key in path:
            line = self._lines.get((id(here), key), line)
            try:
                here = here[key]
            except (KeyError, IndexError, TypeError):
                break
        return line


def parse(data: bytes) -> Parsed:
    """Read one document. NotYaml if it is none."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise NotYaml("it is not text in UTF-8: save it as UTF-8", line) from None
    try:
        return _Reader(text).read()
    except yaml.MarkedYAMLError as error:
        is_split = error.problem is not None and NOT_JOINED in error.problem  # JSON writes an emoji as two halves
        joined = HALVES.sub(lambda halves: json.loads(f'"{halves[0]}"'), text) if is_split else text
        if joined != text:
            return parse(joined.encode("utf-8", "replace"))
        mark = error.problem_mark or error.context_mark
        reason = " ".join(filter(None, (error.context, error.problem)))
        remedy = _remedy(error.problem or "", text, mark.line) if mark else ""
        raise NotYaml(f"it is not YAML: {reason}{remedy}", mark.line + 1 if mark else None) from None
    except yaml.reader.ReaderError as error:
        before = text.encode("utf-8", "replace")[: int(error.position)]
        raise NotYaml(f"it is not YAML: {error.reason}", before.count(b"\n") + 1) from None
    except yaml.YAMLError as error:
        raise NotYaml(f"it is not YAML: {error}") from None


def _remedy(problem: str, text: str, line: int) -> str:
    """What to write instead, for common mistakes."""
    lines = text.splitlines()
    source = lines[line] if line < len(lines) else ""
    if "mapping values are not allowed" in problem:
        found = KEY_AND_TEXT.fullmatch(source)
        is_whole = found and ": " in f"{found[2]} "  # else the text began in an earlier line
        if found and is_whole and len(source) <= LONGEST_EXAMPLE and not SECRET.search(source):
            return f": a text with a colon needs quotes, write {found[1]}: {json.dumps(found[2], ensure_ascii=False)}"
        return ": a text with a colon needs quotes"
    if "expected ',' or" in problem:
        return ": between brackets, a text with a colon or a comma needs quotes"
    if "\t" in source[: len(source) - len(source.lstrip())]:
        return ": indent with blanks, not with tabs"
    return ""


class _Reader:
    """Reads values from the events of a document. It calls itself for what is nested, at most DEEPEST times."""

    def __init__(self, text: str) -> None:
        self._events = yaml.CSafeLoader(text)
        self._lines: dict[tuple[int, Any], int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._held: list[Any] = []
        self._size = 0

    def read(self) -> Parsed:
        documents, result = 0, None
        while (event := self._events.get_event()) is not None:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise NotYaml("it holds more than one document: keep one, without a second ---", _line(event))
            elif isinstance(event, yaml.NodeEvent):
                result = self._value(event, 0)
        return Parsed(result, self._lines, self._held)

    def _value(self, event: yaml.Event, depth: int) -> Any:
        """The value that begins with an event. An alias counts as often as it is used."""
        line, before = _line(event), self._size
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise NotYaml(f"*{event.anchor} stands for nothing: there is no &{event.anchor} before it", line)
            value, size = self._anchors[event.anchor]
            self._count(size, line)
            return value
        if isinstance(event, yaml.ScalarEvent):
            self._count(1 + len(event.value) // LETTERS_PER_VALUE, line)
            value = _scalar(event, line)
        else:
            assert isinstance(event, yaml.CollectionStartEvent)
            if event.tag is not None and event.tag not in (f"{STANDARD}map", f"{STANDARD}seq", "!"):
                raise NotYaml(f"the tag {event.tag[:60]!r} is not understood: leave it out", line)
            if depth >= DEEPEST:
                raise NotYaml(f"it is nested more than {DEEPEST} deep", line)
            self._count(1, line)
            value = self._list(depth) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._size - before
        return value

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            self._lines[id(found), len(found)] = _line(event)
            found.append(self._value(event, depth + 1))
        return found

    def _mapping(self, depth: int) -> dict[str, Any]:
        """A mapping. Its keys are texts: `6:` and `"6":` are the same."""
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, line = self._key(event, depth), _line(event)
            value = self._value(self._next(), depth + 1)
            if key == MERGE and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                parts = value if isinstance(value, list) else [value]
                if not all(isinstance(part, dict) for part in parts):
                    raise NotYaml("<< takes a mapping", line)
                self._held.append(value)
                for part in parts:
                    merged |= {name: each for name, each in part.items() if name not in merged}
            elif key in found:
                raise NotYaml(f"the key {key[:60]!r} is there twice: keep one", line)
            else:
                self._lines[id(found), key] = line
                found[key] = value
        for key, value in merged.items():
            found.setdefault(key, value)
        return found

    def _key(self, event: yaml.Event, depth: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            value = self._value(event, depth + 1)
            if isinstance(value, (dict, list)):
                raise NotYaml("a list or mapping cannot be a key", _line(event))
            return str(value)
        self._count(1 + len(event.value) // LETTERS_PER_VALUE, _line(event))
        if event.anchor is not None:
            self._anchors[event.anchor] = event.value, 1
        return event.value

    def _next(self) -> yaml.Event:
        event = self._events.get_event()
        assert event is not None
        return event

    def _count(self, size: int, line: int) -> None:
        self._size += size
        if self._size > MOST_VALUES:
            raise NotYaml(f"it holds more than {MOST_VALUES:,} values", line)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _scalar(event: yaml.ScalarEvent, line: int) -> Any:
    text, tag = event.value, event.tag
    if tag in (None, "!"):
        return _plain(text, line) if event.implicit[0] else text
    if tag == f"{STANDARD}str":
        return text
    value = _plain(text, line)
    kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
    if tag.startswith(STANDARD) and isinstance(value, kinds.get(tag.removeprefix(STANDARD), ())):  # type: ignore[arg-type]
        return value
    raise NotYaml(f"the tag {tag[:60]!r} is not understood here: leave it out", line)


def _plain(text: str, line: int) -> Any:
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > LONGEST_NUMBER:
        return text
    if WHOLE.fullmatch(text):
        return int(text.replace("_", ""))
    if HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if FRACTION.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise NotYaml(f"{text[:40]} is too large for a number", line)
        return number
    return text
