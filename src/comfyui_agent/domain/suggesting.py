"""`did you mean …?` Runs on Python 3.9."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_LISTED = 12


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean steps?`, or what there is."""
    names = sorted(set(known))
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in names], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(name for name in names if name.lower() == near[0])}?"
    if not names:
        return "there are none"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"there are {', '.join(names[:MOST_LISTED])}{more}"
