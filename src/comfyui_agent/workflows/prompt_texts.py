"""Texts with choices and comments, and file names with references, as the page resolves them when it queues."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Choose = Callable[[Sequence[str]], str]

COMMENT = re.compile(r"/\*|//[^\n\r\u2028\u2029]*")
MARK = re.compile(r"\\.?|[{|}]", re.DOTALL)
ESCAPED = re.compile(r"\\([{}|])")
REFERENCE = re.compile(r"%([^%]+)%")
UNSAFE = re.compile(r'[/?<>\\:*|"\x00-\x1f\x7f]')
MOST_LEVELS = 50
LONGEST_TEXT, LONGEST_NAME = 1_000_000, 4_000


def resolve_choices(text: str, choose: Choose, level: int = 0) -> str:
    """A text without its comments, and with one option of each `{a|b}`. ValueError if choices are nested too deep."""
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"its text has more than {LONGEST_TEXT:,} characters")
    if level > MOST_LEVELS:
        raise ValueError(f"its choices are nested more than {MOST_LEVELS} deep")
    text = _without_comments(text)
    parts, at = list[str](), 0
    while mark := MARK.search(text, at):
        parts.append(text[at : mark.start()])
        at = mark.end()
        if mark[0] == "{":
            options, at = _options(text, at)
            parts.append(resolve_choices(choose(options), choose, level + 1))
        else:
            parts.append("\\undefined" if mark[0] == "\\" else mark[0])
    return ESCAPED.sub(r"\1", "".join([*parts, text[at:]]))


def _without_comments(text: str) -> str:
    parts, at = list[str](), 0
    last_end = text.rfind("*/")
    while match := COMMENT.search(text, at):
        opens_block = match[0] == "/*"
        if opens_block and match.end() > last_end:  # it never ends: the page takes it as text
            parts.append(text[at : match.end()])
            at = match.end()
            continue
        parts.append(text[at : match.start()])
        at = text.index("*/", match.end()) + 2 if opens_block else match.end()
    return "".join([*parts, text[at:]])


def _options(text: str, at: int) -> tuple[list[str], int]:
    """The options of a choice that begins here, and where it ends."""
    options, begin, depth = list[str](), at, 0
    for mark in MARK.finditer(text, at):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}":
            if not depth:
                return [*options, text[begin : mark.start()]], mark.end()
            depth -= 1
        elif mark[0] == "|" and not depth:
            options.append(text[begin : mark.start()])
            begin = mark.end()
    return [*options, text[begin:]], len(text)


def resolve_references(text: str, look_up: Callable[[str, str], str | None]) -> str:
    """A file name with `%Node.field%` replaced. ValueError for `%date:…%`, which only the page knows."""

    if len(text) > LONGEST_NAME:
        raise ValueError(f"its file name has more than {LONGEST_NAME:,} characters")

    def value_of(match: re.Match[str]) -> str:
        words = match[1].split(".")
        if len(words) != 2:
            if words[0].startswith("date:"):
                raise ValueError(f"the page writes the date for {match[0]} when it queues: write another file name")
            return match[0]
        found = look_up(words[0], words[1])
        return match[0] if found is None else UNSAFE.sub("_", found)

    return REFERENCE.sub(value_of, text)
