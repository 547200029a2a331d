"""`did you mean …?` Runs on Python 3.9."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LISTED = 12


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
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"there are {', '.join(names[:MOST_LISTED])}{more}"
