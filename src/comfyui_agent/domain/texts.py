"""Texts as they are kept: JSON that people can read, and nothing that no file or database takes. Runs on Python 3.9."""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any

COMPACT = (",", ":")
MOST_KNOWN = 12
JOINERS = "\u200c\u200d"
"""Some scripts and many emoji need them. They are harmless in a terminal."""


class TextEnum(str, Enum):
    """Members print as their value, like `enum.StrEnum` of Python 3.11."""

    def __str__(self) -> str:
        return str(self.value)


def json_text(value: Any, *, sort: bool = False) -> str:
    """Compact JSON. It is escaped only if lone surrogates could not be encoded otherwise."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=sort, separators=COMPACT)
    return text if is_whole(text) else json.dumps(value, sort_keys=sort, separators=COMPACT)


def bytes_of(value: Any) -> int:
    """The size of a value in the database."""
    return len(json_text(value).encode("utf-8"))


def parsed(text: str | None) -> Any:
    """The value of a JSON column, or its text if it is not JSON."""
    try:
        return None if text is None else json.loads(text, parse_constant=reject_constant)
    except (ValueError, RecursionError):
        return text


def reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def whole(text: str, longest: int) -> str:
    """A text from outside, cut to a length, with lone surrogates escaped."""
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text if is_whole(text) else text.encode("utf-8", "backslashreplace").decode("utf-8")


def counted(count: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`, `1,204 batches`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def attention(count: int) -> str:
    """`1 needs attention`, `2 need attention`."""
    return f"{count:,} need{'s' if count == 1 else ''} attention"


def megabytes(size: int) -> str:
    """`1.5 MB`"""
    number = size / 1024**2
    return f"{number:.1f} MB" if 0 < number < 10 else f"{number:,.0f} MB"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`"""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(whole(name, 100) for name in names[:most]) + more


def counted_jobs(names: Sequence[str]) -> str:
    """`2 jobs: a, b`"""
    return f"{counted(len(names), 'job')}: {listed(names)}"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar known word, if one is similar enough."""
    names = {name.lower(): name for name in sorted(known, reverse=True)}
    near = difflib.get_close_matches(word.lower(), list(names), n=1, cutoff=0.6)
    return names[near[0]] if near else None


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean steps?`, or a list of the known words."""
    names = sorted(set(known))
    near = nearest(word, names)
    if near is not None:
        return f"did you mean {near}?"
    if not names:
        return "there are none"
    more = f" and {len(names) - MOST_KNOWN} more" if len(names) > MOST_KNOWN else ""
    return f"there are {', '.join(names[:MOST_KNOWN])}{more}"


def printable(text: str) -> str:
    """A text that is safe in a terminal: control characters are escaped, except line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(_escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    is_control = letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cs", "Cf", "Zl", "Zp")
    return f"\\x{ord(letter):02x}" if is_control and letter not in JOINERS else letter


def is_whole(text: str) -> bool:
    """Whether a text has no lone surrogates, which JSON allows and UTF-8 does not."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
