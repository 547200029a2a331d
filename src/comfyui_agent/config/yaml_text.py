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
HALVES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class NotYaml(Exception):
    """A text that is not YAML: what is wrong, and in which line."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass
class Parsed:
    """The value of a document, and the lines of its keys."""

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


@dataclass
class _Open:
    """A list or mapping that is being read."""

    value: Any
    anchor: str | None
    size: int = 1
    key: Any = None
    has_key: bool = False
    is_merge: bool = False
    line: int = 0
    first_line: int = 0
    merged: dict[Any, Any] = field(default_factory=dict)


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
        joined = HALVES.sub(_join, text) if error.problem and NOT_JOINED in error.problem else text
        if joined != text:  # JSON writes an emoji as two halves
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


def _join(halves: re.Match[str]) -> str:
    high, low = int(halves[1], 16), int(halves[2], 16)
    return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


class _Reader:
    def __init__(self, text: str) -> None:
        self._events = yaml.CSafeLoader(text)
        self._lines: dict[tuple[int, Any], int] = {}
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._stack: list[_Open] = []
        self._held: list[Any] = []

    def read(self) -> Parsed:
        documents, result = 0, None
        while (event := self._events.get_event()) is not None:
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.ScalarEvent):
                if self._take_key(event, line):
                    continue
                done, size = _scalar(event, line), 1 + len(event.value) // LETTERS_PER_VALUE
                self._remember(event.anchor, done, size)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event, line)
                continue
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                done, size, line = self._close()
            elif isinstance(event, yaml.AliasEvent):
                done, size = self._alias(event, line)
            else:
                documents += isinstance(event, yaml.DocumentStartEvent)
                if documents > 1:
                    raise NotYaml("it holds more than one document: keep one, without a second ---", line)
                continue
            if self._stack:
                self._put(done, size, line)
            else:
                result = done
        return Parsed(result, self._lines, self._held)

    def _take_key(self, event: yaml.ScalarEvent, line: int) -> bool:
        """Take a scalar as a key if one is due. Keys are texts: `6:` and `"6":` are the same."""
        inner = self._stack[-1] if self._stack else None
        if inner is None or inner.has_key or isinstance(inner.value, list):
            return False
        inner.key, inner.has_key, inner.line = event.value, True, line
        inner.is_merge = event.value == MERGE and event.implicit[0]
        inner.size += 1 + len(event.value) // LETTERS_PER_VALUE
        self._remember(event.anchor, event.value, 1)
        return True

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if event.tag is not None and event.tag not in (f"{STANDARD}map", f"{STANDARD}seq", "!"):
            raise NotYaml(f"the tag {event.tag[:60]!r} is not understood: leave it out", line)
        if len(self._stack) >= DEEPEST:
            raise NotYaml(f"it is nested more than {DEEPEST} deep", line)
        empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Open(empty, event.anchor, first_line=line))

    def _close(self) -> tuple[Any, int, int]:
        done = self._stack.pop()
        for key, value in done.merged.items():
            done.value.setdefault(key, value)
        self._remember(done.anchor, done.value, done.size)
        return done.value, done.size, done.first_line

    def _alias(self, event: yaml.AliasEvent, line: int) -> tuple[Any, int]:
        try:
            return self._anchors[event.anchor or ""]
        except KeyError:
            raise NotYaml(f"*{event.anchor} stands for nothing: there is no &{event.anchor} before it", line) from None

    def _remember(self, anchor: str | None, value: Any, size: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = value, size

    def _put(self, value: Any, size: int, line: int) -> None:
        """Put a value into the open list or mapping. An alias counts as often as it is used."""
        inner = self._stack[-1]
        inner.size += size
        if inner.size > MOST_VALUES:
            raise NotYaml(f"it holds more than {MOST_VALUES:,} values", line)
        if isinstance(inner.value, list):
            self._lines[id(inner.value), len(inner.value)] = line
            inner.value.append(value)
        elif not inner.has_key:
            if isinstance(value, (dict, list)):
                raise NotYaml("a list or mapping cannot be a key", line)
            inner.key, inner.has_key, inner.line, inner.is_merge = str(value), True, line, False
        else:
            self._pair(inner, value)

    def _pair(self, inner: _Open, value: Any) -> None:
        inner.has_key = False
        if inner.is_merge:
            parts = value if isinstance(value, list) else [value]
            if not all(isinstance(part, dict) for part in parts):
                raise NotYaml("<< takes a mapping", inner.line)
            self._held.append(value)
            for key, merged in ((key, merged) for part in parts for key, merged in part.items()):
                inner.merged.setdefault(key, merged)
        elif inner.key in inner.value:
            raise NotYaml(f"the key {inner.key[:60]!r} is there twice: keep one", inner.line)
        else:
            self._lines[id(inner.value), inner.key] = inner.line
            inner.value[inner.key] = value


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
